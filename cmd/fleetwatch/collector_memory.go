package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseStartupMemory gives back what only the start needed: the first lists
// of all objects, which are garbage, and the pages of the program file.
func releaseStartupMemory() {
	debug.FreeOSMemory()
	releaseProgramPages()
}

// releaseProgramPages takes the pages of the program file out of this process.
// They are most of the resident memory of a small role of a large program: the
// start runs through the initialisation of every role, and each page that is
// touched brings fifteen neighbours. What is in use comes back from the page
// cache with the next touch, some hundred minor faults in all.
func releaseProgramPages() {
	for _, m := range cleanProgramMappings() {
		// Failure leaves the pages where they are.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

type mapping struct{ start, end uintptr }

// cleanProgramMappings lists the read-only mappings of the program file that
// hold nothing but what the file holds. A mapping with a single changed page
// (relocations, breakpoints) is left out: dropping it would lose the change.
func cleanProgramMappings() []mapping {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil
	}
	defer smaps.Close()
	var clean []mapping
	candidate := false // the last element of clean is being looked at
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		var m mapping
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.start, &m.end); err == nil {
			candidate = len(fields) == 6 && fields[5] == exe && strings.HasPrefix(fields[1], "r") && fields[1][1] == '-'
			if candidate {
				clean = append(clean, m)
			}
			continue
		}
		if candidate && fields[0] == "Anonymous:" && fields[1] != "0" {
			clean, candidate = clean[:len(clean)-1], false
		}
	}
	return clean
}
