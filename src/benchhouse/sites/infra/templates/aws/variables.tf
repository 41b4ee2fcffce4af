variable "name" {
  description = "Name of the cluster; the names of all else begin with it."
  type        = string
}

variable "region" {
  type = string
}

variable "nodes" {
  description = "Nodes without GPUs; the cluster autoscaler stays between min and max."
  type        = object({ type = string, min = number, max = number })
}

variable "gpu_nodes" {
  description = "Nodes with GPUs; max = 0: none."
  type        = object({ type = string, min = number, max = number })
}

variable "bucket" {
  description = "Name of the bucket of evidence: unique in all of S3."
  type        = string
}

variable "disk_gb" {
  description = "Root disk of each node."
  type        = number
}

variable "kubernetes_version" {
  description = "autoscaler.yaml has an image of the same minor version."
  type        = string
  default     = "1.35"
}

variable "api_cidrs" {
  description = "Who may reach the cluster's API; narrow it to your own addresses."
  type        = list(string)
  default     = ["0.0.0.0/0"]
}
