package manifests

import (
	"fmt"
	"strconv"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// check compares what ranks read with the rest of a manifest.
func check(object any) error {
	switch o := object.(type) {
	case *batch.Job:
		return checkJob(&o.Spec, o.Name+"-0."+o.Spec.Template.Spec.Subdomain)
	case *jobset.JobSet:
		for _, r := range o.Spec.ReplicatedJobs {
			if err := checkJob(&r.Template.Spec, fmt.Sprintf("%s-%s-0-0.%[1]s", o.Name, r.Name)); err != nil {
				return err
			}
		}
	case *trainer.TrainJob:
		return checkKey(o.Spec.Trainer.Env)
	}
	return nil
}

// checkJob checks that the number of ranks is that of the pods, and that rank 0's name is that of the first pod.
func checkJob(spec *batch.JobSpec, first string) error {
	env := spec.Template.Spec.Containers[0].Env
	values := map[string]string{}
	for _, v := range env {
		values[v.Name] = v.Value
	}
	switch {
	case spec.CompletionMode == nil || *spec.CompletionMode != batch.IndexedCompletion:
		return fmt.Errorf("not an indexed Job")
	case spec.Completions == nil || spec.Parallelism == nil || *spec.Completions != *spec.Parallelism:
		return fmt.Errorf("not all ranks run at a time")
	case values["WORLD_SIZE"] != strconv.Itoa(int(*spec.Completions)):
		return fmt.Errorf("WORLD_SIZE=%s with %d pods", values["WORLD_SIZE"], *spec.Completions)
	case values["MASTER_ADDR"] != first:
		return fmt.Errorf("MASTER_ADDR=%s, want %s", values["MASTER_ADDR"], first)
	case spec.Template.Spec.HostNetwork && spec.Template.Spec.DNSPolicy != core.DNSClusterFirstWithHostNet:
		return fmt.Errorf("names of pods do not resolve in the network of the host")
	}
	return checkKey(env)
}

// checkKey checks that the key comes from a secret.
func checkKey(env []core.EnvVar) error {
	for _, v := range env {
		if v.Name == "ALLCAST_KEY" && v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
			return nil
		}
	}
	return fmt.Errorf("no ALLCAST_KEY from a secret")
}
