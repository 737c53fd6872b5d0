#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/group/launcher_pipe.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/job_key.h"
#include "gyre/net/network.h"

namespace gyre::group {

/// How a process comes to be a rank of a job.
struct Job {
  int rank = 0;
  int size = 1;
  /// How many ranks, the first ones, are parameter servers: rank 0 hosts the rendezvous and must outlive the workers.
  /// To the launcher they are the last ones; see ranks_in_job.
  int servers = 0;
  net::Endpoint rendezvous;                     ///< Where rank 0 listens; unused when size is 1.
  std::shared_ptr<UniqueFd> listener;           ///< Rank 0: a socket already listening there, if the launcher made one.
  std::shared_ptr<LauncherPipe> launcher_pipe;  ///< Rank 0 tells there why the group fails; unset: nobody listens.
  /// What the launcher and people call the ranks, where this group renumbers some of a job's; empty: as we do. Equal on
  /// all ranks.
  std::vector<int> ranks_in_job;
  /// A file in which the launcher notes, a line each, which ranks have ended with exit code 0: nobody need wait for
  /// them to join. Unset: it does not tell.
  std::shared_ptr<UniqueFd> ended;
  net::JobKey key{};
  bool encrypt = true;  ///< What leaves a host is encrypted (TLS 1.3 over the key); equal for all ranks.
  /// Addresses of this host's network interfaces for links between hosts, in the same order on every host: the rank
  /// with local rank l connects to address l modulo their number. Empty: the interface that leads to the rendezvous.
  std::vector<std::string> link_addresses;
  /// The address on which this rank listens for other hosts; empty: that of the interface that leads to the rendezvous.
  std::string bind_address;
  /// From where other hosts may connect to this rank; empty: from everywhere.
  std::vector<net::Network> allowed;
  std::string launcher;  ///< "gyre", "torchrun", "mpirun", "srun" or "none": for messages.
};

/// Reads what the launcher of this process left in the environment: `gyre run`, torchrun, mpirun (Open MPI)
/// or srun; a process started without any is a job of one rank. See docs/guide/launchers.md.
/// A foreign launcher hands down no key: on one host the ranks get one from rank 0 over a unix socket where the
/// kernel vouches for the user; over several hosts GYRE_KEY_FILE must name a private file that all of them can read.
/// Takes the link settings, too. May wait for rank 0 until the deadline. Error(kInvalidArgument) names the variable
/// that is wrong or missing.
Job job_from_environment(Deadline deadline);

/// What the environment says of connections between hosts, for a job that is known otherwise: GYRE_TLS=0 leaves them
/// unencrypted, GYRE_INTERFACES=eth0,eth1 names network interfaces, GYRE_BIND=ADDRESS (or a network, for this host's
/// address in it) where to listen, GYRE_ALLOW=NETWORK,… who may connect. Error(kInvalidArgument) names the variable
/// that is wrong.
void take_link_settings(Job& job);

/// The secret that the ranks of a job share, for whatever its process groups need to agree on: from GYRE_KEY_FD, else
/// from GYRE_KEY_FILE; none where neither is there. Error(kInvalidArgument) when the file is not private or too short.
std::optional<SecretKey> secret_from_environment();

/// The abstract unix socket at which rank 0 listens when all ranks of a job are on one host. Those who know the key
/// alone know its name, so nobody else can bind it first.
net::Endpoint rendezvous_on_this_host(const net::JobKey& key);

/// Rank 0 of ranks on one host that have no secret yet: listens at an abstract unix socket with a random name.
class LocalKeyServer {
 public:
  LocalKeyServer();
  /// Without the '@'.
  const std::string& name() const { return name_; }
  /// Hands `key` to ranks 1 … size-1, if they run as the same user, for which the kernel vouches. Error(kTimeout) names
  /// those that did not come.
  void hand_out(int size, const SecretKey& key, Deadline deadline) const;

 private:
  std::string name_;
  UniqueFd socket_;
};

/// Another rank: the key from the server of that name, which must be there already and run as the same user.
/// Error(kAuthentication) names the other user and process; kTimeout: nobody is there.
SecretKey fetch_key_on_this_host(const std::string& name, int rank, Deadline deadline);

}  // namespace gyre::group
