#pragma once

#include <string>
#include <vector>

#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node {

struct OutputPlace {
  std::string id;
  std::string path;
};

/// What an order means on one node.
struct JobEnvironment {
  Variables variables;
  std::vector<OutputPlace> outputs;   ///< To be made before anything starts.
  std::string log_folder;             ///< AZ_BATCHAI_STDOUTERR_DIR; to be made too.
  std::string kept_files;             ///< Where copies go of files that `outputFiles` names; beside the logs.
  std::vector<std::string> prefixes;  ///< Below which these lie, each once.
  std::vector<std::string> warnings;  ///< Sentences: a name without a value, say.
};

/// The environment of every process of a job on one node: `base`, Batch AI's variables, then the variables
/// `of_process`, the job's own, expanded in their order, and its secrets, as they are. With `of_process` empty: the
/// environment of the preparation. Error(kInvalidArgument) for a path that is not absolute after expansion. Pure.
JobEnvironment job_environment(const orders::WorkOrder& order, const NodeFolders& folders, const Variables& base,
                               const Variables& of_process = {});

/// One sentence for each AZ_BATCH… name in a shell line that has no value.
std::vector<std::string> unset_names(const std::string& what, const std::string& shell_line,
                                     const Variables& variables);

/// The values of the order's secrets, which no log may show. Short ones (under 4 bytes) are left out: hiding every "1"
/// would hide nothing and spoil the log.
std::vector<std::string> secret_values(const orders::WorkOrder& order);

/// The content of AZ_BATCHAI_MPI_HOST_FILE, for `processes` in all; 0: as many as there are GPUs, or cores.
std::string mpi_host_file(const orders::WorkOrder& order, int processes);

/// How many of `count` processes run on each of `nodes`: in blocks, the first nodes get one more.
std::vector<int> spread(int count, int nodes);

/// Whether the nodes are virtual ones of one machine: all of their addresses are of its loopback.
bool on_one_machine(const orders::WorkOrder& order);

/// "NAME=VALUE" each.
std::vector<std::string> as_entries(const Variables& variables);

}  // namespace gyre::jobs::node
