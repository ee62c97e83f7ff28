package report

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func someData(t *testing.T, spec string) *Data {
	t.Helper()
	return &Data{
		Title: "title", Command: "allcast lab run", Notes: "notes", Op: "allgather", Bytes: paperBytes,
		Topology: spec, Runs: someRuns(parse(t, spec)),
	}
}

func TestSaveAndLoad(t *testing.T) {
	d := someData(t, "fat-tree:16,4,2")
	var b bytes.Buffer
	if err := d.Save(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Load(&b)
	if err != nil {
		t.Fatal(err)
	}
	d.Format = dataFormat
	if !reflect.DeepEqual(got, d) {
		t.Errorf("loaded %+v, saved %+v", got, d)
	}
	page, err := got.Page()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(render(t, page), "<title>title</title>") {
		t.Error("the title is missing in the page")
	}
}

func TestSaveRefusesWhatLoadWould(t *testing.T) {
	d := someData(t, "star:3")
	d.Topology = "star:4"
	var b bytes.Buffer
	if err := d.Save(&b); !errors.Is(err, ErrInput) || b.Len() > 0 {
		t.Errorf("error %v, %d bytes written", err, b.Len())
	}
}

func TestLoadRefuses(t *testing.T) {
	const head = `{"format":"allcast-report/1","topology":`
	for _, c := range []struct{ text, want string }{
		{``, "JSON"},
		{`{`, "JSON"},
		{`[]`, "array"},
		{`null`, "format"},
		{`{}`, "format"},
		{`{"format":"allcast-report/2"}`, "allcast-report/1"},
		{head + `"ring:3","runs":[]}`, "unknown kind"},
		{head + `"star:1","runs":[]}`, "no runs"},
		{head + `"star:1","runs":[{"name":"x","link_bytes":[1]}]}`, "star:1 has 2"},
		{head + `"star:1","runs":[{"name":"x","link_bytes":[1,-1]}]}`, "link_bytes"},
		{head + `"star:1","runs":[{"name":"x","link_bytes":[1,1],"time_us":-3}]}`, "-3 us"},
		{head + `"star:1","runs":[{"name":"x","link_bytes":[1,18446744073709551615]}]}`, "can be counted"},
		{head + `"star:1","runs":[{"name":"x","link_bytes":[1,1]}]} x`, "JSON"},
	} {
		if _, err := Load(strings.NewReader(c.text)); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not contain %q", c.text, err, c.want)
		}
	}
}

func TestMerge(t *testing.T) {
	a, b := someData(t, "fat-tree:16,4,2"), someData(t, "fat-tree:16,4,2")
	b.Command = "another"
	m, err := Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Runs) != 4 || len(a.Runs) != 2 || m.Command != "allcast lab run\nanother" {
		t.Errorf("merged: %d runs, command %q", len(m.Runs), m.Command)
	}
	if _, err := Merge(); !errors.Is(err, ErrInput) {
		t.Errorf("merging no data: %v", err)
	}
	for name, edit := range map[string]func(*Data){
		"network":   func(d *Data) { *d = *someData(t, "fat-tree:16,4,3") },
		"operation": func(d *Data) { d.Op = "broadcast" },
		"size":      func(d *Data) { d.Bytes = 1 },
	} {
		b := someData(t, "fat-tree:16,4,2")
		edit(b)
		if _, err := Merge(a, b); !errors.Is(err, ErrInput) {
			t.Errorf("merging data with a different %s: %v", name, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(`{"format":"allcast-report/1","topology":"star:1","runs":[{"name":"x","link_bytes":[1,1]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Load(strings.NewReader(text))
		if err != nil {
			return
		}
		page, err := d.Page()
		if err != nil {
			t.Fatal(err)
		}
		if err := page.Write(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
	})
}
