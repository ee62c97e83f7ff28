package lab

// Usable returns an error if this process cannot build labs. The error says what is missing.
func Usable() error { return checkPrivileges() }
