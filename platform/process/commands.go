package process

import (
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kong"
)

// ParseCommands reads the command line of a tool with commands of its own,
// which are fields of cli. It does not return if that cannot be used: the last
// line on stderr says why and where help is, and the exit code is 2, as it is
// for [Main].
func ParseCommands(cli any, options ...kong.Option) *kong.Context {
	parser := kong.Must(cli, options...)
	parsed, err := parser.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s; see %s --help\n", parser.Model.Name, credentials.ReplaceAllString(err.Error(), "***"), chosen(parser, err))
		os.Exit(exitUsage)
	}
	return parsed
}

// chosen returns the command that the complaint is about, as it is typed.
func chosen(parser *kong.Kong, err error) string {
	var complaint *kong.ParseError
	if errors.As(err, &complaint) && complaint.Context != nil {
		if node := complaint.Context.Selected(); node != nil {
			return node.FullPath()
		}
	}
	return parser.Model.Name
}
