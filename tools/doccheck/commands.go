package doccheck

import (
	"maps"
	"regexp"
	"strings"
)

// others are programs that are not ours; their arguments are their own affair.
var others = map[string]bool{"go": true, "git": true, "curl": true, "psql": true, "docker": true, "docker-compose": true,
	"cat": true, "sed": true, "kill": true, "pkill": true, "cd": true, "export": true, "open": true, "jq": true, "for": true, "nats": true}

// flagsOf says where a program's flags are declared: its own folder is cmd/<name>.
var flagsOf = map[string][]string{
	"demo":    {"demo"},
	"shopctl": {"shopctl", "demo"},
	"sim":     {"demo/sim", "platform/process"},
	"relay":   {"platform/process"},
	"bench":   {"bench"},
}

// handsTo are scripts that hand their arguments to a program.
var handsTo = map[string]string{"scripts/demo": "demo", "scripts/bench": "bench"}

var assignment = regexp.MustCompile(`^([A-Z][A-Z0-9_]*)=`)

// isCommand reports whether text starts like a command line.
func (s *sources) isCommand(text string) bool {
	program, rest, _ := strings.Cut(text, " ")
	if assignment.MatchString(program) {
		return rest != ""
	}
	return strings.HasPrefix(program, "scripts/") || program == "make" ||
		rest != "" && (others[program] || s.files["cmd/"+program] || strings.HasPrefix(program, ".orderpaid/bin/"))
}

// judgeCommand returns what is wrong with a command line, or "".
func (s *sources) judgeCommand(line string) string {
	line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), " #")
	fields := strings.Fields(line)
	for len(fields) > 0 {
		m := assignment.FindStringSubmatch(fields[0])
		if m == nil {
			break
		}
		if !s.words[m[1]] && !s.foreign[m[1]] {
			return "nothing reads the variable " + quote(m[1])
		}
		fields = fields[1:]
	}
	if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
		return ""
	}
	program, args := fields[0], fields[1:]
	switch name := strings.TrimPrefix(program, ".orderpaid/bin/"); {
	case program == "make":
		return s.judgeTargets(args)
	case s.files["cmd/"+name]:
		return s.judgeProgram(name, args)
	case strings.Contains(program, "/"):
		return s.judgeScript(program, args)
	case others[program]:
		return ""
	}
	return "there is no program " + quote(program)
}

func (s *sources) judgeTargets(args []string) string {
	for _, target := range args {
		if !s.targets[target] {
			return "the Makefile has no target " + quote(target)
		}
	}
	return ""
}

// judgeScript checks a script of ours, or the program behind it.
func (s *sources) judgeScript(script string, args []string) string {
	if !s.files[script] {
		return "there is no script " + quote(script)
	}
	if name, ok := handsTo[script]; ok {
		return s.judgeProgram(name, args)
	}
	for _, arg := range args {
		name, isFlag := strings.CutPrefix(arg, "--")
		if isFlag && name != "help" && !s.spelled[script][name] {
			return quote(script) + " does not know " + quote(arg)
		}
	}
	return ""
}

// judgeProgram checks subcommands and flags of a program under cmd.
func (s *sources) judgeProgram(name string, args []string) string {
	folders := append([]string{"cmd/" + name}, flagsOf[name]...)
	if flagsOf[name] == nil {
		folders = append(folders, "services/"+name, "platform/process")
	}
	verbs := map[string]bool{}
	for _, folder := range folders {
		maps.Copy(verbs, s.verbs[folder])
	}
	for i, arg := range args {
		if arg == "--" { // what follows is another program's
			return ""
		}
		flag, isFlag := strings.CutPrefix(arg, "--")
		if isFlag {
			flag, _, _ = strings.Cut(flag, "=")
			if flag != "help" && flag != "version" && !s.hasFlag(folders, flag) {
				return quote(name) + " does not know " + quote("--"+flag)
			}
			continue
		}
		if i == 0 && len(verbs) > 0 && !strings.HasPrefix(arg, "-") && !verbs[arg] {
			return quote(name) + " has no command " + quote(arg)
		}
	}
	return ""
}

func (s *sources) hasFlag(folders []string, flag string) bool {
	for _, folder := range folders {
		if s.flags[folder][flag] {
			return true
		}
	}
	return false
}

// anyFlag reports whether some program or script knows the flag.
func (s *sources) anyFlag(flag string) bool {
	for _, flags := range s.flags {
		if flags[flag] {
			return true
		}
	}
	for _, flags := range s.spelled {
		if flags[flag] {
			return true
		}
	}
	return flag == "help" || flag == "version"
}
