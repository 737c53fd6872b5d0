#pragma once

#include <functional>
#include <string>

namespace gyre::jobs::node::internal {

/// Why something that takes long is to end now; empty: it goes on. Called often.
using Interruption = std::function<std::string()>;

struct CopyResult {
  std::string problem{};      ///< "No space left on device"; empty: none.
  bool exists = false;        ///< The copy, whole or as far as the file could be read while it changed.
  bool disk_is_full = false;  ///< Or the user's quota.
};

/// Copies the open regular file into a new file `name` of the open folder `to`: what it holds now, with its holes, its
/// permissions and its time of change. A copy that fails is removed.
CopyResult copy_file(int from, int to, const std::string& name, const Interruption& interruption);

/// "No space left on device".
std::string reason_of(int error_number);

}  // namespace gyre::jobs::node::internal
