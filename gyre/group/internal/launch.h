#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "gyre/net/endpoint.h"

namespace gyre::group {

/// Looks up an environment variable; tests bring their own.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// What the launcher's variables say, before anything is opened.
struct Launch {
  enum class KeySource : std::uint8_t {
    kNone,         ///< A job of one rank.
    kDescriptor,   ///< `key_descriptor`, from `gyre run`.
    kFile,         ///< `key_file`, mixed with `job_id`.
    kLocalSocket,  ///< Rank 0 makes one and hands it out on `local_key_endpoint()`.
  };

  std::string launcher = "none";  ///< gyre, mpirun, torchrun, srun or none.
  int rank = 0;
  int size = 1;
  std::string job_id;  ///< Different for any two jobs that could meet.
  net::Endpoint rendezvous;
  KeySource key_source = KeySource::kNone;
  int key_descriptor = -1;
  int listener_descriptor = -1;  ///< Rank 0 under `gyre run`.
  int verdict_descriptor = -1;   ///< Likewise.
  int ended_descriptor = -1;     ///< Every rank under `gyre run`.
  std::string key_file;

  net::Endpoint local_key_endpoint() const { return {net::Endpoint::Kind::kUnix, rendezvous.host + "-key", 0}; }
};

/// Recognises, in this order, `gyre run`, mpirun (Open MPI), torchrun and srun: so mpirun and torchrun inside a Slurm
/// allocation are themselves. Pure. Error(kInvalidArgument) names the variable that is wrong or missing.
Launch read_launch(const Variables& variables, uid_t user);

/// The first host of a list as Slurm writes it: "node[01-03,7],login" -> "node01".
std::string first_slurm_host(std::string_view node_list);

}  // namespace gyre::group
