resource "aws_eks_cluster" "main" {
  name     = var.name
  version  = var.kubernetes_version
  role_arn = aws_iam_role.cluster.arn

  vpc_config {
    subnet_ids              = aws_subnet.private[*].id
    endpoint_private_access = true
    endpoint_public_access  = true
    public_access_cidrs     = var.api_cidrs
  }

  access_config {
    authentication_mode                         = "API"
    bootstrap_cluster_creator_admin_permissions = true
  }

  upgrade_policy {
    support_type = "STANDARD" # extended support costs six times as much
  }

  depends_on = [aws_iam_role_policy_attachment.cluster]
}

resource "aws_eks_addon" "pod_identity" {
  cluster_name = aws_eks_cluster.main.name
  addon_name   = "eks-pod-identity-agent"
}

resource "aws_launch_template" "node" {
  name_prefix = "${var.name}-"

  metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 1 # a pod can't take the rights of its node
  }

  block_device_mappings {
    device_name = "/dev/xvda"
    ebs {
      volume_size = var.disk_gb
      volume_type = "gp3"
      encrypted   = true
    }
  }
}

# All nodes are in one zone: trials that talk to each other have the same network in every run.

resource "aws_eks_node_group" "cpu" {
  cluster_name    = aws_eks_cluster.main.name
  node_group_name = "cpu"
  node_role_arn   = aws_iam_role.node.arn
  subnet_ids      = [aws_subnet.private[0].id]
  instance_types  = [var.nodes.type]
  labels          = { pool = "cpu" }

  launch_template {
    id      = aws_launch_template.node.id
    version = aws_launch_template.node.latest_version
  }

  scaling_config {
    min_size     = var.nodes.min
    max_size     = var.nodes.max
    desired_size = var.nodes.min
  }

  lifecycle {
    ignore_changes = [scaling_config[0].desired_size] # the autoscaler's
  }

  depends_on = [aws_iam_role_policy_attachment.node, aws_route_table_association.private]
}

resource "aws_eks_node_group" "gpu" {
  count           = var.gpu_nodes.max > 0 ? 1 : 0
  cluster_name    = aws_eks_cluster.main.name
  node_group_name = "gpu"
  node_role_arn   = aws_iam_role.node.arn
  subnet_ids      = [aws_subnet.private[0].id]
  instance_types  = [var.gpu_nodes.type]
  ami_type        = "AL2023_x86_64_NVIDIA"
  labels          = { pool = "gpu" }

  launch_template {
    id      = aws_launch_template.node.id
    version = aws_launch_template.node.latest_version
  }

  scaling_config {
    min_size     = var.gpu_nodes.min
    max_size     = var.gpu_nodes.max
    desired_size = var.gpu_nodes.min
  }

  taint {
    key    = "nvidia.com/gpu"
    value  = "present"
    effect = "NO_SCHEDULE"
  }

  lifecycle {
    ignore_changes = [scaling_config[0].desired_size]
  }

  depends_on = [aws_iam_role_policy_attachment.node, aws_route_table_association.private]
}
