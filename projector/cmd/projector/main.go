// Command projector applies the changes of a session-enabled Service Bus subscription or queue to
// read models, and lets people look after them: `projector help` lists the commands. It is
// configured by environment variables; see the README. It exits with 0 after SIGTERM or SIGINT and
// where a command found all well, with 2 when a setting or the command line is wrong, and with 1
// when it cannot go on or a command found a problem.
//
// It has the projections that come with the projector. A program with projections of your own is as
// short: see [projector.Main].
package main

import "github.com/sluice-cdc/sluice/projector"

func main() { projector.Main() }
