// A rank and nothing else: joins the job that its launcher describes, twice, and exchanges a byte with every other
// rank each time. Started under real launchers by the tests of this folder. With the argument `join-only` it joins
// once, without links to other ranks: bench/join.py measures what membership alone costs.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/group/group.h"
#include "gyre/group/job.h"
#include "gyre/net/stream.h"

namespace {

using gyre::Deadline;

constexpr std::chrono::milliseconds kLongestWait{30'000};

void exchange(gyre::group::Group& group) {
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    const auto link = group.open_link(peer, 1, Deadline::after(kLongestWait));
    const auto number = static_cast<std::byte>(group.rank());
    std::byte received{};
    gyre::net::write_exactly(*link, {&number, 1}, Deadline::after(kLongestWait));
    gyre::net::read_exactly(*link, {&received, 1}, Deadline::after(kLongestWait));
    if (std::to_integer<int>(received) == peer) continue;
    throw gyre::Error(gyre::ErrorCode::kProtocol,
                      fmt::format("rank {} called itself {}", peer, std::to_integer<int>(received)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool join_only = argc == 2 && std::string_view(argv[1]) == "join-only";
  try {
    for (int round = 0; round < (join_only ? 1 : 2); ++round) {
      const auto start = gyre::SteadyClock::now();
      const gyre::group::Job job = gyre::group::job_from_environment(Deadline::after(kLongestWait));
      const auto group = gyre::group::join_group(job, {}, gyre::make_logger(fmt::format("rank {}", job.rank)));
      const auto joined = gyre::SteadyClock::now();
      if (!join_only) exchange(*group);
      group->leave();
      fmt::print("launcher={} rank={} size={} local={}/{} joined_ms={}\n", job.launcher, job.rank, job.size,
                 group->topology().local_rank(), group->topology().local_size(),
                 std::chrono::duration_cast<std::chrono::milliseconds>(joined - start).count());
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
