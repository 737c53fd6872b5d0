#pragma once

#include "gyre/launch/spec.h"

namespace gyre::launch {

/// Runs the ranks of `spec` as a process that its parent can leave and find again: everything that happens becomes a
/// numbered record, and a client of the socket (this user, or root) gets those after the number that it names.
/// docs/guide/launch.md has the records and the requests.
///
/// * Prints one line of JSON on stdout once the ranks run, and then lets go of stdin, stdout, stderr and the session.
/// * SIGTERM, SIGINT and SIGQUIT stop the ranks as `gyre run` does; SIGHUP and the end of the parent do nothing.
/// * When this process is killed, its guardian kills the ranks.
/// * Returns the ranks' exit code, once a reader has released it or `linger` has passed after their end.
///
/// Errors before any rank runs: SpawnError, Error. For single-threaded processes. Blocks.
int run_detached(const LaunchSpec& spec);

}  // namespace gyre::launch
