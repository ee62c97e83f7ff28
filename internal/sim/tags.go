package sim

// WithTags returns the configuration of a run in which packets carry tags instead of payload, even if there is room for
// the payload. The run is faster, and still verifies that every chunk arrives where it belongs.
func (cfg Config) WithTags() Config {
	cfg.tags = true
	return cfg
}
