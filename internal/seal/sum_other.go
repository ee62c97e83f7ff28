//go:build !amd64 || purego

package seal

const folds = false

func fold(uint32, []byte) uint32 { panic("seal: no assembly for this processor") }

func wordsSum(uint32, uint64, uint64) uint32 { panic("seal: no assembly for this processor") }
