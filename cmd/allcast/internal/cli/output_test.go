package cli

import "testing"

func TestSchema(t *testing.T) {
	for object, want := range map[string]string{
		`{"a":{"schema":7}}`: `{"a":{"schema":7},"schema":1}`,
		`{}`:                 `{"schema":1}`,
		`{"schema":3,"a":1}`: `{"schema":3,"a":1}`,
	} {
		if got := string(withSchema([]byte(object))); got != want {
			t.Errorf("%s becomes %s, want %s", object, got, want)
		}
	}
}
