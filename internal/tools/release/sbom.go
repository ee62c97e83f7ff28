package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast"
)

// bomName is the name of the bill of materials, in the JSON format of CycloneDX 1.5.
const bomName = "allcast.cdx.json"

type (
	bom struct {
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		Serial       string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp,omitempty"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version,omitempty"`
		PURL       string     `json:"purl,omitempty"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Licenses   []license  `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	license struct {
		License struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

// bill writes the bill of materials from what the binaries themselves say about their modules.
func (r *release) bill(dir string, binaries []string) ([]byte, error) {
	main := component{
		Type: "application", Ref: moduleURL("github.com/allcast/allcast", "v"+allcast.Version), Name: "allcast",
		Version: allcast.Version, PURL: moduleURL("github.com/allcast/allcast", "v"+allcast.Version),
	}
	var apache license
	apache.License.ID = "Apache-2.0"
	main.Licenses = []license{apache}
	b := bom{Format: "CycloneDX", SpecVersion: "1.5", Version: 1, Metadata: metadata{Component: main}}
	if !r.commit.time.IsZero() {
		b.Metadata.Timestamp = r.commit.time.Format(time.RFC3339)
		b.Metadata.Component.Properties = []property{{"vcs.revision", r.commit.revision}}
	}
	var files []component
	modules := map[string]component{}
	all := dependency{Ref: main.Ref}
	for _, name := range binaries {
		file, uses, err := describe(dir, name)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		all.DependsOn = append(all.DependsOn, name)
		maps.Copy(modules, uses)
		b.Dependencies = append(b.Dependencies, dependency{name, slices.Sorted(maps.Keys(uses))})
	}
	b.Dependencies = append([]dependency{all}, b.Dependencies...)
	b.Components = files
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		b.Components = append(b.Components, modules[ref])
		b.Dependencies = append(b.Dependencies, dependency{ref, []string{}})
	}
	return b.encode()
}

// describe returns a binary and the modules that it consists of, by their reference.
func describe(dir, name string) (component, map[string]component, error) {
	path := filepath.Join(dir, name)
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return component{}, nil, fmt.Errorf("%s: %w", name, err)
	}
	sum, err := digest(path)
	if err != nil {
		return component{}, nil, err
	}
	file := component{
		Type: "file", Ref: name, Name: name, Version: allcast.Version, Hashes: []hash{{"SHA-256", sum}},
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "CGO_ENABLED":
			file.Properties = append(file.Properties, property{"build." + s.Key, s.Value})
		}
	}
	std := module(&debug.Module{Path: "stdlib", Version: "v" + strings.TrimPrefix(info.GoVersion, "go")})
	modules := map[string]component{std.Ref: std}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := module(m)
		modules[c.Ref] = c
	}
	return file, modules, nil
}

func module(m *debug.Module) component {
	url := moduleURL(m.Path, m.Version)
	c := component{Type: "library", Ref: url, Name: m.Path, Version: m.Version, PURL: url}
	if m.Sum != "" { // a hash of the module's file hashes, and not of a file
		c.Properties = []property{{"go.sum", m.Sum}}
	}
	return c
}

// moduleURL is the package URL of a Go module, which also serves as its reference.
func moduleURL(path, version string) string {
	return "pkg:golang/" + strings.ReplaceAll(path, "~", "%7E") + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// encode writes the bill, with a serial number that follows from its content.
func (b *bom) encode() ([]byte, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(text)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8 of RFC 9562: any content
	b.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
	text, err = json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}
