//go:build tools

// Package programs pins the programs of a control plane: those of Kubernetes, whose own go.mod replaces its libraries by folders that
// the module lacks, and the etcd that it is built with.
package programs

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
