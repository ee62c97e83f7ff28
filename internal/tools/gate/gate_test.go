package main

import (
	"strings"
	"testing"
)

func TestKinds(t *testing.T) {
	for path, want := range map[string]kind{
		"": library, "internal/fabric/ip": library, "internal/sim": pure, "internal/model/dpa": pure,
		"cmd/allcast": processes, "internal/simulated": processes, "anything/new": processes,
	} {
		if got := kindOf(path); got != want {
			t.Errorf("%q: kind %d, want %d", path, got, want)
		}
	}
}

// Each line is an event as test2json writes it.
const events = `{"Action":"run","Test":"TestGood"}
{"Action":"output","Test":"TestGood","Output":"--- PASS: TestGood (0.00s)\n"}
{"Action":"pass","Test":"TestGood"}
{"Action":"output","Test":"TestBad/part","Output":"    bad_test.go:3: too late\n"}
{"Action":"fail","Test":"TestBad/part"}
{"Action":"fail","Test":"TestBad"}
{"Action":"output","Test":"TestNone","Output":"    none_test.go:9: needs a moon\n"}
{"Action":"skip","Test":"TestNone"}
{"Action":"skip","Test":"FuzzAll/seed#1"}
{"Action":"output","Output":"FAIL\n"}
`

func TestRead(t *testing.T) {
	r := newResult(&pkg{}, false)
	r.read(strings.NewReader(events))
	if r.passed != 1 || r.skipped != 1 || len(r.failed) != 1 || r.failed[0] != "TestBad" {
		t.Errorf("passed %d, skipped %d, failed %q", r.passed, r.skipped, r.failed)
	}
	if r.reasons["TestNone"] != "needs a moon" || !strings.Contains(r.output["TestBad"], "too late") {
		t.Errorf("reasons %q, output %q", r.reasons, r.output)
	}
}

// Some failures stand without a second run.
func TestFinalFailures(t *testing.T) {
	fails := map[string]string{"": "FAIL\n"}
	for name, r := range map[string]*result{
		"pure":             {pkg: &pkg{kind: pure}, failed: []string{"T"}, output: map[string]string{"": "FAIL\n"}},
		"no test failed":   {pkg: &pkg{}, output: map[string]string{"": "FAIL\n"}},
		"ended early":      {pkg: &pkg{}, failed: []string{"T"}, output: map[string]string{"T": "    x_test.go:1: late\n"}},
		"race":             failed("WARNING: DATA RACE\n", "FAIL\n"),
		"race of another":  {pkg: &pkg{}, failed: []string{"T"}, output: fails, all: "WARNING: DATA RACE\nFAIL\n"},
		"another crashed":  {pkg: &pkg{}, failed: []string{"T"}, output: fails, open: map[string]bool{"U": true}},
		"other data":       failed("    x_test.go:1: rank 2 received other bytes\n", "FAIL\n"),
		"panic":            failed("panic: index out of range\n", "FAIL\n"),
		"wrong data":       failed("    x_test.go:1: message 3: wrong data\n", "FAIL\n"),
		"leak":             failed("late", "the tests passed, but: found unexpected goroutines\nFAIL\n"),
		"hang":             failed("late", "panic: test timed out after 10m0s\nFAIL\n"),
		"memory of C code": failed("ERROR: AddressSanitizer: heap-use-after-free\n", "FAIL\n"),
	} {
		if flaky, _ := (&gate{}).again(t.Context(), r); flaky {
			t.Errorf("%s: counts as chance", name)
		}
	}
	// The name of a test is no reason.
	for _, line := range []string{"=== RUN   TestWrongData\n", "    --- FAIL: TestWrongData/corrupt (0.00s)\n"} {
		if bad := finalOfTest.FindString(heading.ReplaceAllString(line, "")); bad != "" {
			t.Errorf("%q is final because of %q", line, bad)
		}
	}
}

// failed is the result of a networked package of which one test failed.
func failed(test, rest string) *result {
	return &result{
		pkg: &pkg{}, failed: []string{"T"}, output: map[string]string{"T": test, "": rest}, all: test + rest,
	}
}

func TestCrash(t *testing.T) {
	if got := crash("=== RUN TestA\nok\npanic: out of range\n\ngoroutine 1"); !strings.HasPrefix(got, "panic:") {
		t.Errorf("%q", got)
	}
	if got := crash("nothing special\n"); got != "nothing special\n" {
		t.Errorf("%q", got)
	}
}
