// Package doccheck keeps the documentation true: every name in it must exist.
//
//	README, docs/**.md ──► code spans, code blocks, links, headings
//	                                   │ each name is looked up in
//	Go, SQL, contracts, scripts ──► what exists (sources.go)
//
// It finds: files, Go names, tests, tables, columns, metrics, environment
// variables, routes, commands and flags that do not exist; dead links; a page
// without its Chinese twin, or one that has drifted from it; a dependency
// without a decision record, and a record without its sections.
//
// Comments do not count as existence: a name that only a comment mentions is
// as gone as one that nothing mentions. Names of other products, which our
// code never spells, are listed with their reason in foreign.txt.
//
// It does not judge prose. A sentence can be wrong although all its names
// exist.
//
// Read sources.go, markdown.go, names.go, commands.go, pages.go.
package doccheck
