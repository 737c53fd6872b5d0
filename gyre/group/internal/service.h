#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/log.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/group/internal/group_state.h"
#include "gyre/group/internal/links/addresses.h"
#include "gyre/group/topology.h"
#include "gyre/net/async/message_connection.h"
#include "gyre/net/handshake.h"
#include "gyre/net/network.h"
#include "gyre/net/psk_tls.h"

namespace gyre::group {

struct RendezvousOptions;

/// The one background thread of a rank: accepts links, listens to the rendezvous and, in rank 0, hosts it. Idle it
/// sleeps in epoll_wait. Everything else about Asio is behind this door. Methods are thread-safe.
class Service {
 public:
  Service();
  /// Drops all connections and joins the thread.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Rank 0 only. Returns its own member's end of the membership connection.
  UniqueFd host_rendezvous(const RendezvousOptions& options, UniqueFd listening_socket);

  struct Member {
    UniqueFd connection;  ///< To the rendezvous, after the Members message.
    std::shared_ptr<net::TlsSession> tls{};
    LinkListeners listeners;
    net::JobKey key{};
    bool encrypt = true;
    std::vector<net::Network> allowed{};
    std::uint64_t epoch = 0;
    net::SharedMessage members{};  ///< For the ranks that have this one for a source.
    std::chrono::milliseconds handshake_timeout{10'000};
    Logger logger;
  };
  /// From here on links are accepted and news arrives; `state` and `topology` outlive this object.
  void become_member(Member member, GroupState& state, const Topology& topology);

  // After become_member().
  void send_abort(const Error& reason);
  void send_leave();
  void send_leave_subgroup(std::uint64_t subgroup);
  /// Rank 0 only. Takes effect before anything that this rank sends to others afterwards can have an effect here.
  void tolerate_losses(const std::vector<int>& ranks);
  /// Ends the thread and closes all connections and the sockets at which it listens: a process that ends must not
  /// answer handshakes while its libraries are cleaned up, and a job that it joins next may listen at the same
  /// addresses. After it the other methods do nothing; idempotent.
  void stop();

 private:
  struct Parts;
  /// Calls `work` with the parts on the thread, unless it has been stopped.
  template <typename Work>
  void on_thread(Work work);

  Mutex mutex_;
  std::unique_ptr<Parts> parts_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::group
