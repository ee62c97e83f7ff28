package napi

import (
	"errors"
	"fmt"
	"strings"
)

// threaded is the value of the sysfs file of that name that gives an interface threads.
const threaded = "1"

// gathering are the features that receive cores need. A veth hands packets to its threads only with
// GRO on, for UDP too. The packets must come from a socket at the peer end, or the peer end must
// have TSO off, so that the stack segments TCP super-packets. The lab turns TSO off on request.
var gathering = []string{"rx-gro", "rx-udp-gro-forwarding"}

// settings are values of an interface that receive cores change.
type settings struct {
	Threaded string
	Features map[string]bool // without those that the kernel or the driver does not know
}

func threadedPath(name string) string { return "class/net/" + name + "/threaded" }

func (d *device) threaded(name string) (string, error) {
	text, err := d.sys.ReadFile(threadedPath(name))
	return strings.TrimSpace(string(text)), err
}

// settings reads the current values.
func (d *device) settings() (settings, error) {
	name, err := d.name()
	if err != nil {
		return settings{}, err
	}
	s := settings{Features: map[string]bool{}}
	if s.Threaded, err = d.threaded(name); err != nil {
		return settings{}, fmt.Errorf("%w; threaded interfaces need Linux 5.12", err)
	}
	for _, what := range gathering {
		if on, err := feature(d.sock, name, what); err == nil {
			s.Features[what] = on
		}
	}
	return s, nil
}

// apply makes the interface threaded, and turns on the features in saved. It changes no value that
// is already right.
func (d *device) apply(saved settings) error {
	name, err := d.name()
	if err != nil {
		return err
	}
	for _, what := range gathering {
		if _, ok := saved.Features[what]; ok {
			_ = setFeature(d.sock, name, what, true) // best effort: only a veth needs it
		}
	}
	if err := d.setThreaded(name, threaded); err != nil {
		return fmt.Errorf("%w; its driver may have no threads", err)
	}
	return nil
}

// restore sets the values that apply changed back to those of saved. It succeeds if the interface is
// gone.
func (d *device) restore(saved settings) error {
	name, err := d.name()
	if err == nil {
		err = d.restoreNamed(name, saved)
	}
	if err != nil {
		if _, now := d.name(); errors.Is(now, errGone) {
			return nil
		}
	}
	return err
}

func (d *device) restoreNamed(name string, saved settings) error {
	var errs []error
	if saved.Threaded != threaded {
		errs = append(errs, d.setThreaded(name, saved.Threaded))
	}
	for _, what := range gathering {
		if on, ok := saved.Features[what]; ok && !on {
			errs = append(errs, d.featureOff(name, what))
		}
	}
	return errors.Join(errs...)
}

// featureOff turns a feature off and checks the result: the kernel reports no error if the driver
// refuses.
func (d *device) featureOff(name, what string) error {
	if err := setFeature(d.sock, name, what, false); err != nil {
		return err
	}
	on, err := feature(d.sock, name, what)
	if err == nil && on {
		err = fmt.Errorf("feature %s of %s stays on: its driver does not turn it off", what, name)
	}
	return err
}

func (d *device) setThreaded(name, value string) error {
	if now, err := d.threaded(name); err == nil && now == value {
		return nil
	}
	if err := d.sys.WriteFile(threadedPath(name), []byte(value), 0); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, threadedPath(name), errors.Unwrap(err)) // without its own path
	}
	return nil
}
