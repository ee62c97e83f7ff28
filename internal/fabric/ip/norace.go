//go:build !race

package ip

func raceSend(int, ...[]byte) {}
func raceReceive(int, int)    {}
