package demo

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// A footprint is the memory of a set of processes.
type footprint struct {
	Bytes     int64
	Processes int
	Measure   string           // how Bytes was counted
	By        map[string]int64 // bytes by program
}

func newFootprint(measure string) footprint {
	return footprint{Measure: measure, By: map[string]int64{}}
}

func (f *footprint) add(program string, bytes int64) {
	f.Bytes += bytes
	f.Processes++
	f.By[program] += bytes
}

// String names the programs too, the largest first.
func (f footprint) String() string {
	programs := slices.SortedFunc(maps.Keys(f.By), func(a, b string) int { return cmp.Compare(f.By[b], f.By[a]) })
	for i, program := range programs {
		programs[i] = fmt.Sprintf("%s %d", program, f.By[program]>>20)
	}
	return fmt.Sprintf("%d MB in %d processes, %s (%s)", f.Bytes>>20, f.Processes, f.Measure, strings.Join(programs, ", "))
}

// measureMemory adds up the given processes and all their descendants. On
// Linux it counts proportional set sizes: a page that several processes share,
// such as PostgreSQL's buffers, counts once in total. Elsewhere the kernel
// does not say that, and the sum of resident sizes is an upper bound.
func measureMemory(roots ...int) (footprint, error) {
	if runtime.GOOS != "linux" {
		return residentSizes(roots)
	}
	parents, err := linuxParents()
	if err != nil {
		return footprint{}, fmt.Errorf("memory: %w", err)
	}
	f := newFootprint("proportional set size")
	for _, pid := range descendants(parents, roots) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it ended meanwhile
		}
		program, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			continue
		}
		f.add(strings.TrimSpace(string(program)), field(raw, "Pss:")<<10)
	}
	return f, nil
}

// linuxParents returns the parent of every process.
func linuxParents() (map[int]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return nil, err
	}
	parents := make(map[int]int, len(files))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		parents[int(field(raw, "Pid:"))] = int(field(raw, "PPid:"))
	}
	return parents, nil
}

// field returns the number after name at the start of a line, or 0.
func field(raw []byte, name string) int64 {
	for line := range bytes.Lines(raw) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			if words := strings.Fields(string(rest)); len(words) > 0 {
				n, _ := strconv.ParseInt(words[0], 10, 64)
				return n
			}
		}
	}
	return 0
}

// descendants returns roots and everything below them.
func descendants(parents map[int]int, roots []int) []int {
	below := map[int]bool{}
	for _, root := range roots {
		below[root] = true
	}
	var found []int
	for pid := range parents {
		for p := pid; p > 1; p = parents[p] {
			if below[p] {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// residentSizes is measureMemory by ps, for systems without /proc.
func residentSizes(roots []int) (footprint, error) {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,rss=,comm=").Output()
	if err != nil {
		return footprint{}, fmt.Errorf("memory: ps: %w", err)
	}
	parents, kilobytes, programs := map[int]int{}, map[int]int64{}, map[int]string{}
	for line := range strings.Lines(string(out)) {
		var pid, ppid int
		var rss int64
		var program string
		if _, err := fmt.Sscan(line, &pid, &ppid, &rss, &program); err == nil {
			parents[pid], kilobytes[pid], programs[pid] = ppid, rss, filepath.Base(program)
		}
	}
	f := newFootprint("resident set size, shared pages counted more than once")
	for _, pid := range descendants(parents, roots) {
		f.add(programs[pid], kilobytes[pid]<<10)
	}
	return f, nil
}
