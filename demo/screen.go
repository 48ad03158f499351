package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// A screen writes lines that stay and, below them, one line that changes. On
// what is no terminal the changing line becomes an ordinary one now and then.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	live     string    // what the changing line shows
	printed  time.Time // when it was last written as an ordinary line
}

// plainInterval is the time between two ordinary lines in place of the
// changing one.
const plainInterval = 5 * time.Second

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	return &screen{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"}
}

// clearLine moves to the first column and deletes the line.
const clearLine = "\r\x1b[K"

// printf writes a line that stays.
func (s *screen) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if s.terminal && s.live != "" {
		fmt.Fprintf(s.out, "%s%s\n%s", clearLine, line, s.live)
		return
	}
	fmt.Fprintln(s.out, line)
}

// show replaces the changing line.
func (s *screen) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.terminal:
		s.live = line
		fmt.Fprint(s.out, clearLine+line)
	case time.Since(s.printed) >= plainInterval:
		s.printed = time.Now()
		fmt.Fprintln(s.out, line)
	}
}

// keep makes the changing line one that stays.
func (s *screen) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != "" {
		s.live = ""
		fmt.Fprintln(s.out)
	}
	s.printed = time.Time{}
}

// bar draws a progress bar of 20 characters.
func bar(done, of int) string {
	const width = 20
	full := width
	if of > 0 {
		full = min(width, width*done/of)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// table writes rows with aligned columns. The first row is the head.
func table(rows [][]string) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-len([]rune(cell))+2)
		}
		b.WriteString("  " + strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
