# An EKS cluster for benchmarks. What was asked for is in terraform.tfvars.json, all else that can be set in variables.tf.

terraform {
  required_version = ">= 1.6"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.25"
    }
  }
}

provider "aws" {
  region = var.region
  default_tags {
    tags = { bench-infra = var.name }
  }
}
