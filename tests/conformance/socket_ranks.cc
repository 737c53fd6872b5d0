#include "tests/conformance/socket_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <thread>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/net/socket.h"

namespace gyre::group {

std::vector<Job> make_jobs(int size, const std::string& rendezvous) {
  net::Endpoint endpoint = net::parse_endpoint(rendezvous);
  if (endpoint.kind == net::Endpoint::Kind::kUnix) {
    std::array<std::byte, 8> random;
    fill_with_secure_random(random);
    endpoint.host += fmt::format("-{}-{:016x}", ::getpid(), ByteReader(random, "a name").u64());
  }
  const auto listener = std::make_shared<UniqueFd>(net::listen_on(endpoint));
  endpoint.port = net::local_endpoint(listener->get()).port;
  std::vector<Job> jobs(static_cast<std::size_t>(size));
  const net::JobKey key = net::make_random_key();
  for (int rank = 0; rank < size; ++rank) {
    jobs[rank].rank = rank;
    jobs[rank].size = size;
    jobs[rank].rendezvous = endpoint;
    jobs[rank].key = key;
    jobs[rank].launcher = "gyre";
  }
  jobs.front().listener = listener;
  return jobs;
}

void run_jobs(const std::vector<Job>& jobs, const std::function<void(Group&)>& body,
              const std::vector<std::string>& host_ids, const GroupOptions& options) {
  Mutex mutex;
  std::optional<Error> first;
  const auto run_rank = [&](const Job& job) {
    std::unique_ptr<Group> group;
    try {
      GroupOptions own_options = options;
      if (!host_ids.empty()) own_options.host_id = host_ids[static_cast<std::size_t>(job.rank)];
      group = join_group(job, own_options, null_logger());
      body(*group);
      group->leave();
    } catch (Error& error) {
      error.add_context(fmt::format("rank {}", job.rank));
      {
        const MutexLock lock(mutex);
        if (!first) first = error;
      }
      if (group) group->abort(error);
    }
  };
  std::vector<std::thread> threads;
  for (const Job& job : jobs) threads.emplace_back([&] { run_rank(job); });
  for (std::thread& thread : threads) thread.join();
  if (first) throw *first;
}

void run_over_sockets(int size, const std::function<void(Group&)>& body, const std::vector<std::string>& host_ids,
                      const std::string& rendezvous) {
  run_jobs(make_jobs(size, rendezvous), body, host_ids);
}

}  // namespace gyre::group
