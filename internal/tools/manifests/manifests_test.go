// Package manifests checks the Kubernetes manifests of the documentation. It is a module of its own, because the types
// of Kubernetes would be the largest dependency of Allcast.
package manifests

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"
)

const pages = "../../../docs/kubernetes/*.yaml"

// Every manifest decodes strictly: no unknown field, no duplicate key, no value of a wrong type.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob(pages)
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: no manifests", err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path) // of this repository
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range bytes.Split(text, []byte("\n---\n")) {
			var kind struct {
				APIVersion string `json:"apiVersion"`
				Kind       string `json:"kind"`
			}
			if err := yaml.Unmarshal(part, &kind); err != nil {
				t.Errorf("%s, part %d: %v", path, i, err)
				continue
			}
			object, ok := map[string]any{
				"v1 Service": &core.Service{}, "v1 Secret": &core.Secret{}, "batch/v1 Job": &batch.Job{},
				"jobset.x-k8s.io/v1alpha2 JobSet":                      &jobset.JobSet{},
				"trainer.kubeflow.org/v1alpha1 TrainJob":               &trainer.TrainJob{},
				"trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime": &trainer.ClusterTrainingRuntime{},
			}[kind.APIVersion+" "+kind.Kind]
			if !ok {
				t.Errorf("%s, part %d: unknown kind %q %q", path, i, kind.APIVersion, kind.Kind)
				continue
			}
			if err := yaml.UnmarshalStrict(part, object); err != nil {
				t.Errorf("%s, part %d: %v", path, i, err)
			}
			if err := check(object); err != nil {
				t.Errorf("%s, part %d: %v", path, i, err)
			}
		}
	}
}

// Strict decoding finds mistakes.
func TestStrict(t *testing.T) {
	for _, text := range []string{
		"apiVersion: batch/v1\nkind: Job\nspec: {completion: 2}\n",
		"apiVersion: batch/v1\nkind: Job\nspec: {completions: two}\n",
		"apiVersion: batch/v1\nkind: Job\nkind: Job\n",
	} {
		if yaml.UnmarshalStrict([]byte(text), &batch.Job{}) == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}
