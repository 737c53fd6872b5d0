#pragma once

#include <memory>

#include "gyre/base/file.h"
#include "gyre/group/group.h"
#include "gyre/group/internal/links/addresses.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"
#include "gyre/group/job.h"
#include "gyre/net/async/message_connection.h"
#include "gyre/net/psk_tls.h"

namespace gyre::group {

/// How a process became a member.
struct Admission {
  UniqueFd connection;                     ///< To the rendezvous; the Members message has been read from it.
  std::shared_ptr<net::TlsSession> tls{};  ///< Its session where it is encrypted.
  LinkListeners listeners;
  std::uint64_t epoch = 0;
  std::vector<Member> members{};       ///< As this rank sees them.
  net::SharedMessage members_message;  ///< As it goes to the ranks that have this one for a source.
  std::vector<Exit> exits{};           ///< What rank 0 has said of ranks that left meanwhile.
};

/// Rank 0's way in: `connection` leads to the rendezvous in this process; `listening_socket` shows the interface.
Admission join_own_rendezvous(const Job& job, const GroupOptions& options, UniqueFd connection, int listening_socket);

/// Everybody else's: connects, proves the key, asks to join, and waits until all are there. While an earlier group of
/// the job is still dissolving it tries again. Errors as join_group's.
Admission join_rendezvous(const Job& job, const GroupOptions& options);

}  // namespace gyre::group
