"""The software bill of materials of a package as CycloneDX JSON 1.6."""

from collections.abc import Sequence

from benchhouse.schema.errors import BenchError
from benchhouse.schema.packages import PackageComponent


def sbom(subject: str, components: Sequence[PackageComponent]) -> str:
    """Return the text of the file."""
    try:
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.model.license import DisjunctiveLicense
        from cyclonedx.output.json import JsonV1Dot6
        from packageurl import PackageURL
    except ImportError as error:
        raise BenchError("no parts list can be made here", "pip install 'benchhouse[scan]'") from error
    bom = Bom()
    bom.metadata.component = Component(name=subject, type=ComponentType.APPLICATION)
    for item in components:
        bom.components.add(
            Component(
                name=item.name,
                version=item.version,
                type=ComponentType.LIBRARY,
                purl=PackageURL("pypi", None, item.name, item.version),
                licenses=[DisjunctiveLicense(name=item.licence)] if item.licence else (),
            )
        )
    bom.register_dependency(bom.metadata.component, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
