# Who may do what. Pods get rights by their service account (EKS Pod Identity), never by their node.

data "aws_partition" "current" {}

data "aws_iam_policy_document" "assume" {
  for_each = {
    cluster = "eks.amazonaws.com"
    node    = "ec2.amazonaws.com"
    pod     = "pods.eks.amazonaws.com"
  }
  statement {
    actions = each.key == "pod" ? ["sts:AssumeRole", "sts:TagSession"] : ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = [each.value]
    }
  }
}

resource "aws_iam_role" "cluster" {
  name               = "${var.name}-cluster"
  assume_role_policy = data.aws_iam_policy_document.assume["cluster"].json
}

resource "aws_iam_role_policy_attachment" "cluster" {
  role       = aws_iam_role.cluster.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/AmazonEKSClusterPolicy"
}

resource "aws_iam_role" "node" {
  name               = "${var.name}-node"
  assume_role_policy = data.aws_iam_policy_document.assume["node"].json
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each   = toset(["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly"])
  role       = aws_iam_role.node.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/${each.value}"
}

# Pods of benchmarks (service account bench in namespace bench): read and write evidence, remove nothing.

resource "aws_iam_role" "evidence" {
  name               = "${var.name}-evidence"
  assume_role_policy = data.aws_iam_policy_document.assume["pod"].json
}

data "aws_iam_policy_document" "evidence" {
  statement {
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.evidence.arn]
  }
  statement {
    actions   = ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"]
    resources = ["${aws_s3_bucket.evidence.arn}/*"]
  }
}

resource "aws_iam_role_policy" "evidence" {
  name   = "evidence"
  role   = aws_iam_role.evidence.id
  policy = data.aws_iam_policy_document.evidence.json
}

resource "aws_eks_pod_identity_association" "evidence" {
  cluster_name    = aws_eks_cluster.main.name
  namespace       = "bench"
  service_account = "bench"
  role_arn        = aws_iam_role.evidence.arn
}

# The cluster autoscaler: look at everything it has to, change the size of this cluster's groups only.

resource "aws_iam_role" "autoscaler" {
  name               = "${var.name}-autoscaler"
  assume_role_policy = data.aws_iam_policy_document.assume["pod"].json
}

data "aws_iam_policy_document" "autoscaler" {
  statement {
    actions = [
      "autoscaling:DescribeAutoScalingGroups",
      "autoscaling:DescribeAutoScalingInstances",
      "autoscaling:DescribeLaunchConfigurations",
      "autoscaling:DescribeScalingActivities",
      "autoscaling:DescribeTags",
      "ec2:DescribeImages",
      "ec2:DescribeInstanceTypes",
      "ec2:DescribeLaunchTemplateVersions",
      "ec2:GetInstanceTypesFromInstanceRequirements",
    ]
    resources = ["*"] # these have no resources to name
  }
  statement {
    actions   = ["eks:DescribeNodegroup"]
    resources = concat([aws_eks_node_group.cpu.arn], aws_eks_node_group.gpu[*].arn)
  }
  statement {
    actions   = ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"]
    resources = ["*"]
    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/k8s.io/cluster-autoscaler/${var.name}" # EKS tags the groups of its nodes so
      values   = ["owned"]
    }
  }
}

resource "aws_iam_role_policy" "autoscaler" {
  name   = "autoscaler"
  role   = aws_iam_role.autoscaler.id
  policy = data.aws_iam_policy_document.autoscaler.json
}

resource "aws_eks_pod_identity_association" "autoscaler" {
  cluster_name    = aws_eks_cluster.main.name
  namespace       = "kube-system"
  service_account = "cluster-autoscaler"
  role_arn        = aws_iam_role.autoscaler.arn
}
