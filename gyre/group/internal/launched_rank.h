#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "gyre/group/launched_place.h"

namespace gyre::group {

/// Looks up an environment variable; tests bring their own.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// A launcher that gives its ranks their numbers, and nothing by which they could find each other.
struct NumberingLauncher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_size;  ///< Ranks on this host; null: `hosts` says whether there are others.
  const char* hosts;       ///< Null: `local_size` does.
  const char* job;         ///< Equal for the ranks of a job, and no others at the same time; null: there is none.
};

/// What started this process.
struct Launcher {
  enum class Kind : std::uint8_t { kNone, kGyre, kOpenMpi, kTorchrun, kSlurm, kNumbering };
  Kind kind = Kind::kNone;
  const NumberingLauncher* names = nullptr;  ///< Of kNumbering.
};

/// The launcher nearest to this process: mpirun and torchrun inside a Slurm allocation are themselves. kNone: nothing
/// says anything about it. Error(kInvalidArgument) names a variable that says that this process is one of several,
/// where none says which of how many.
Launcher find_launcher(const Variables& variables);

/// What it says of this process, parameter servers counted (kGyre). Error(kInvalidArgument) names the variable that is
/// wrong or missing.
LaunchedPlace place_of(const Launcher& launcher, const Variables& variables);

/// What launched_place_from_environment() returns.
LaunchedPlace launched_place(const Variables& variables);

/// The tasks of this process's node, of a list as Slurm writes it ("4(x2),3") and the node's number in it; 0 where the
/// list is something else.
int tasks_on_node(std::string_view tasks_per_node, int node);

// Reading variables; errors name them.
std::string required(const Variables& variables, const char* name, std::string_view launcher);
int required_number(const Variables& variables, const char* name, std::string_view launcher, int low, int high);
std::optional<int> optional_number(const Variables& variables, const char* name, int low, int high);

}  // namespace gyre::group
