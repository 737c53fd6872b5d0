#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/group/group.h"
#include "gyre/group/in_process.h"
#include "gyre/group/subgroup.h"
#include "gyre/net/stream.h"
#include "tests/conformance/socket_ranks.h"

// What the suites have in common that every back end of Group must pass.

namespace gyre::group {

using Body = std::function<void(Group&)>;
/// Runs `body` once per rank, each on its own thread with its own group; rethrows the first failure.
using RunRanks = std::function<void(int size, const Body& body, const std::vector<std::string>& host_ids)>;

struct BackEnd {
  std::string name;
  RunRanks run;
};

inline std::ostream& operator<<(std::ostream& stream, const BackEnd& back_end) { return stream << back_end.name; }

inline Deadline soon() { return Deadline::after(std::chrono::milliseconds(20'000)); }

inline void say(net::Stream& stream, int number) {
  write_exactly(stream, std::as_bytes(std::span(&number, 1)), soon());
}

inline int hear(net::Stream& stream) {
  int number = 0;
  read_exactly(stream, std::as_writable_bytes(std::span(&number, 1)), soon());
  return number;
}

/// The failure that `action` ends in; a test failure when it ends well.
inline Error failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {ErrorCode::kInternal, "none"};
}

class BackEndTest : public testing::TestWithParam<BackEnd> {
 protected:
  static void run(int size, const Body& body, const std::vector<std::string>& host_ids = {}) {
    GetParam().run(size, body, host_ids);
  }
};

inline std::unique_ptr<Group> subgroup_of(Group& group, std::vector<int> ranks, std::uint64_t id) {
  return make_subgroup(std::shared_ptr<Group>(&group, [](Group*) {}), std::move(ranks), id);
}

inline BackEnd in_process() {
  return {"in_process",
          [](int size, const Body& body, const std::vector<std::string>& hosts) { run_in_process(size, body, hosts); }};
}

/// Every rank joins over real sockets; that they are threads of one process is all that is played.
inline BackEnd sockets(const std::string& name, const std::string& rendezvous) {
  return {name, [rendezvous](int size, const Body& body, const std::vector<std::string>& hosts) {
            run_over_sockets(size, body, hosts, rendezvous);
          }};
}

inline auto all_back_ends() {
  return testing::Values(in_process(), sockets("unix_sockets", "unix:@gyre-test"),
                         sockets("tcp_sockets", "tcp:127.0.0.1:0"));
}

inline std::string name_of_back_end(const testing::TestParamInfo<BackEnd>& information) {
  return information.param.name;
}

}  // namespace gyre::group
