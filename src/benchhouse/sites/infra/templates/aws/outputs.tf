output "bucket" {
  value = aws_s3_bucket.evidence.bucket
}

output "kubernetes_version" {
  value = aws_eks_cluster.main.version
}

output "kubeconfig" {
  description = "The command that adds the cluster to your kubeconfig."
  value       = "aws eks update-kubeconfig --name ${aws_eks_cluster.main.name} --region ${var.region} --alias ${var.name}"
}
