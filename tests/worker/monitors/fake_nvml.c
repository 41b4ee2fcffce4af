/* A fake libnvidia-ml: two GPUs with the answers that an H200 gave (recorded in h200/), and faults on demand.
 *
 * The file named by FAKE_NVML_FAULTS is read at every call: lines of "CALL GPU CODE" make that call of that GPU fail
 * with the code; CALL may be "*". So a test can let a GPU fail in the middle of a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned int gpu, memory; } utilisation_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_t;
typedef union { double d; unsigned int ui; unsigned long ul; unsigned long long ull; } value_t;
typedef struct {
    unsigned int field, scope;
    long long timestamp, latency;
    int type, code;
    value_t value;
} field_t;

static int begun;
static int gpus[2] = {0, 1};

static int fault(const char *call, void *device) {
    const char *path = getenv("FAKE_NVML_FAULTS");
    FILE *file = path ? fopen(path, "r") : NULL;
    char name[100];
    int gpu, code, found = begun > 0 ? 0 : 1; /* 1: not initialised */
    while (file && fscanf(file, "%99s %d %d", name, &gpu, &code) == 3)
        if (device ? *(int *)device == gpu && (!strcmp(name, "*") || !strcmp(name, call)) : !strcmp(name, call)) found = code;
    if (file) fclose(file);
    return found;
}
#define CHECK(device) do { int code = fault(__func__, device); if (code) return code; } while (0)

int nvmlInitWithFlags(unsigned int flags) { begun++; int code = fault(__func__, NULL); if (code) begun--; return code; }
int nvmlShutdown(void) { CHECK(NULL); begun--; return 0; }
int fake_begun(void) { return begun; }
const char *nvmlErrorString(int code) {
    return code == 15 ? "GPU is lost" : code == 3 ? "Not Supported" : code == 999 ? "Unknown Error" : "Some Error";
}
int nvmlDeviceGetCount_v2(unsigned int *count) { CHECK(NULL); *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    if (index > 1) return 2;
    CHECK(&gpus[index]);
    *device = &gpus[index];
    return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned int size) {
    CHECK(device);
    snprintf(name, size, "NVIDIA H200");
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, utilisation_t *out) {
    CHECK(device);
    out->gpu = *(int *)device ? 0 : 97;
    out->memory = *(int *)device ? 0 : 31;
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, memory_t *out) {
    CHECK(device);
    if (out->version != (sizeof(memory_t) | 2 << 24)) return 25; /* argument version mismatch */
    out->total = 143771ULL << 20;
    out->reserved = 616ULL << 20;
    out->used = *(int *)device ? 0 : 6001ULL << 20;
    out->free = out->total - out->reserved - out->used;
    return 0;
}
int nvmlDeviceGetClockInfo(void *device, int type, unsigned int *out) {
    CHECK(device);
    if (type != 1 && type != 2) return 2;
    *out = type == 1 ? 1980 : 3201;
    return 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned int *out) { CHECK(device); *out = 113050; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out) {
    static unsigned long long millijoules = 5000000000ULL; /* beyond 32 bits */
    CHECK(device);
    *out = millijoules += 1000;
    return 0;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *out) {
    CHECK(device);
    *out = sensor ? 0 : 38;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out) {
    CHECK(device);
    *out = *(int *)device ? 0x1 : 0x4 | 0x20; /* idle; power cap and heat */
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *out) {
    CHECK(device);
    *out = counter ? 99 : type ? 0 : 7;
    return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned int *out) { CHECK(device); *out = *(int *)device ? 8 : 16; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned int *out) { CHECK(device); *out = 16; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned int *out) { CHECK(device); *out = 5; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned int *out) { CHECK(device); *out = 5; return 0; }
int nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned int *out) { CHECK(device); *out = counter ? 541 : 1093; return 0; }
int nvmlDeviceGetNvLinkState(void *device, unsigned int link, unsigned int *out) {
    CHECK(device);
    if (*(int *)device || link > 17) return 3; /* the second GPU has none */
    *out = link != 4; /* one link is down */
    return 0;
}
int nvmlDeviceGetFieldValues(void *device, int count, field_t *fields) {
    CHECK(device);
    for (int at = 0; at < count; at++) {
        field_t *f = &fields[at];
        f->code = 0;
        f->type = 3;
        switch (f->field) {
        case 82: f->type = 1; f->value.ui = 41; break;
        case 94: f->value.ull = 2; break;
        case 138: f->value.ull = f->scope == 0xFFFFFFFF ? 10 : 0; break;
        case 139: f->value.ull = f->scope == 0xFFFFFFFF ? 20 : 0; break;
        case 38: f->value.ull = 1; break;
        case 45: f->value.ull = 4; break;
        case 52: f->code = fault("field52", device); f->value.ull = 3; break;
        case 59: f->value.ull = 6; break;
        default: f->code = 3;
        }
        if (f->field != 82 && f->field != 94 && *(int *)device) f->code = 3; /* no NVLink */
    }
    return 0;
}

typedef struct { char legacy[16]; unsigned int domain, bus, device, device_id, subsystem_id; char address[32]; } pci_t;
typedef struct { unsigned long long total, free, used; } memory_v1_t;

int nvmlSystemGetDriverVersion(char *version, unsigned int size) { CHECK(NULL); snprintf(version, size, "570.86.10"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { CHECK(NULL); *version = 12080; return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int size) {
    CHECK(device);
    snprintf(uuid, size, "GPU-%d", *(int *)device);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory_v1_t *out) { CHECK(device); out->total = 143771ULL << 20; return 0; }
int nvmlDeviceGetPciInfo_v3(void *device, pci_t *out) {
    CHECK(device);
    snprintf(out->address, sizeof out->address, "00000000:%02X:00.0", 0xA0 + *(int *)device);
    return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned int link, int *out) { CHECK(device); *out = link < 9 ? 2 : 0; return 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned int link, pci_t *out) {
    CHECK(device);
    snprintf(out->address, sizeof out->address, "00000000:A1:00.0");
    return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *out) {
    CHECK(one);
    *out = one == other ? 0 : 20; /* several PCIe switches */
    return 0;
}
