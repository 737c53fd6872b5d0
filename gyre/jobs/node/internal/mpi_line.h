#pragma once

#include <string>
#include <string_view>

#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node::internal {

// Pieces of lines for bash.

/// What init methods of PyTorch begin with; the node puts its own path in place of the variable.
inline const std::string kSharedFileUrl = "file://$AZ_BATCHAI_SHARED_JOB_TEMP/";

/// Variables in it are expanded by the shell, all else is as it stands.
std::string in_double_quotes(std::string_view text);
std::string in_single_quotes(std::string_view text);
/// One word, as it stands, but for the variables that a job of `order` knows ("AZ_…", its own variables and secrets):
/// the shell expands those. What the word's program does with any other "$" is its own business.
std::string program_word(std::string_view text, const orders::WorkOrder& order);

/// The interpreter ("python" of the PATH, or python3 where there is no python, when none is named) and the script.
std::string python_command(const spec::PythonScript& python);
/// The same for a script that imports Horovod, where no `gyre run --horovod-compat` starts it: Gyre stands in for one
/// that the interpreter does not have (`python -m gyre.horovod`), if the interpreter has Gyre.
std::string horovod_command(const spec::PythonScript& python);

/// The line that runs the shell line `line` in `processes` processes over the order's nodes, under that MPI, or under
/// `gyre run` where there is none. Every process gets the job's variables.
std::string mpi_line(const orders::WorkOrder& order, const std::string& line, int processes, orders::Mpi mpi);

/// `command`: words for bash. `servers`: parameter servers, in addition to the processes, in turn on the nodes.
std::string gyre_run_line(const orders::WorkOrder& order, const std::string& command, int processes, int servers = 0);
/// Runs `line` again after it has failed, at most `restarts` times.
std::string with_restarts(const std::string& line, int restarts);

}  // namespace gyre::jobs::node::internal
