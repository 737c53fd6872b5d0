#pragma once

namespace gyre::app {

/// Those verbs of `gyre` of which each attempt of a job starts a process or two on each of its nodes, as a program.
/// Returns its exit code.
int node_program(int argc, char** argv);

}  // namespace gyre::app
