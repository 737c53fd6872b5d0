// What leaves a host must be encrypted unless the job itself says otherwise, whatever others say; and nobody may come
// who was not let in.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/group/group.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"
#include "gyre/net/handshake.h"
#include "gyre/net/message.h"
#include "gyre/net/psk_tls.h"
#include "gyre/net/socket.h"
#include "tests/conformance/socket_ranks.h"

namespace gyre::group {
namespace {

using std::chrono::milliseconds;

constexpr const char* kTcp = "tcp:127.0.0.1:0";
const std::vector<std::string> kTwoHosts{"first-host", "second-host"};

Deadline soon() { return Deadline::after(milliseconds(20'000)); }

Error failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "no error was thrown"};
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Both ranks send each other a byte.
void exchange(Group& group) {
  const auto link = group.open_link(1 - group.rank(), 1, soon());
  std::byte byte{7};
  write_exactly(*link, {&byte, 1}, soon());
  read_exactly(*link, {&byte, 1}, soon());
  EXPECT_EQ(byte, std::byte{7});
}

/// Somebody between a rank and its rendezvous, who sees what passes and may change one byte of what rank 0 says.
class Middle {
 public:
  explicit Middle(const net::Endpoint& rendezvous, std::size_t changed_byte = 0)
      : rendezvous_(rendezvous), changed_byte_(changed_byte), listener_(net::listen_on(net::parse_endpoint(kTcp))) {
    thread_ = std::thread([this] { run(); });
  }
  ~Middle() {
    stop_ = true;
    thread_.join();
  }
  net::Endpoint endpoint() const { return net::local_endpoint(listener_.get()); }
  /// What rank 0 and the other rank have said; to be asked when both are gone.
  const std::string& seen() const { return seen_; }
  std::size_t bytes_of_rank_zero() const { return bytes_of_rank_zero_; }

 private:
  void run() {
    while (!stop_) {
      pollfd waiting{listener_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 10) <= 0) continue;
      const auto near = net::make_socket_stream(net::accept_from(listener_.get()), "the rank");
      const auto far = net::make_socket_stream(net::connect_to(rendezvous_, soon()), "rank 0");
      try {
        while (!stop_) {
          pollfd ends[2] = {{near->fd(), POLLIN, 0}, {far->fd(), POLLIN, 0}};
          ::poll(ends, 2, 10);
          pass(*near, *far, false);
          pass(*far, *near, true);
        }
      } catch (const Error&) {
        continue;  // One of them has closed its end.
      }
    }
  }

  void pass(net::Stream& from, net::Stream& to, bool is_rank_zero) {
    Bytes chunk(65'536);
    chunk.resize(from.read_some(chunk));
    if (is_rank_zero) {
      const std::size_t before = std::exchange(bytes_of_rank_zero_, bytes_of_rank_zero_ + chunk.size());
      if (changed_byte_ >= before && changed_byte_ < bytes_of_rank_zero_ && changed_byte_ != 0) {
        chunk[changed_byte_ - before] ^= std::byte{1};
      }
    }
    seen_ += as_text(chunk);
    write_exactly(to, chunk, soon());
  }

  net::Endpoint rendezvous_;
  std::size_t changed_byte_;
  UniqueFd listener_;
  std::atomic<bool> stop_{false};
  std::string seen_;
  std::size_t bytes_of_rank_zero_ = 0;
  std::thread thread_;
};

/// Of a job whose rank 1 comes through `middle`.
void run_through(Middle& middle, std::vector<Job> jobs) {
  jobs[1].rendezvous = middle.endpoint();
  run_jobs(jobs, exchange, kTwoHosts);
}

TEST(Encryption, hides_membership_from_those_between_the_hosts_unless_the_job_is_plain) {
  for (const bool encrypt : {true, false}) {
    auto jobs = make_jobs(2, kTcp);
    for (Job& job : jobs) job.encrypt = encrypt;
    std::string seen;
    {
      Middle middle(jobs[0].rendezvous);
      run_through(middle, jobs);
      seen = middle.seen();
    }
    EXPECT_EQ(contains(seen, "second-host"), !encrypt);
    EXPECT_EQ(contains(seen, "gyre-link"), !encrypt);
  }
}

TEST(Encryption, a_byte_of_the_membership_that_was_changed_on_the_way_ends_the_joining) {
  // By a test without changes: how much rank 0 says. The handshake is its beginning, the membership the most of it.
  auto jobs = make_jobs(2, kTcp);
  std::size_t said = 0;
  {
    Middle middle(jobs[0].rendezvous);
    run_through(middle, jobs);
    said = middle.bytes_of_rank_zero();
  }
  ASSERT_GT(said, 300U);
  GroupOptions options;
  options.join_timeout = milliseconds(1'000);
  for (const std::size_t changed : {std::size_t{80}, said / 2}) {
    jobs = make_jobs(2, kTcp);
    Middle middle(jobs[0].rendezvous, changed);
    jobs[1].rendezvous = middle.endpoint();
    std::thread rank_zero([&] {
      EXPECT_NE(failure_of([&] { exchange(*join_group(jobs[0], options, null_logger())); }).code(),
                ErrorCode::kInternal);
    });
    const Error error = failure_of([&] { join_group(jobs[1], options, null_logger()); });
    EXPECT_TRUE(error.code() == ErrorCode::kAuthentication || error.code() == ErrorCode::kCorruptData) << error.what();
    rank_zero.join();
  }
}

/// The acceptor's side of the handshake by hand.
net::Transcript admit(net::Stream& stream, const net::JobKey& key) {
  net::Transcript transcript;
  read_exactly(stream, transcript.opening, soon());
  transcript.answer = net::make_answer(key, transcript.opening, 0, net::Nonce{});
  write_exactly(stream, transcript.answer, soon());
  net::Proof proof;
  read_exactly(stream, proof, soon());
  write_exactly(stream, {&net::kWelcome, 1}, soon());
  return transcript;
}

std::unique_ptr<net::Stream> accept(const UniqueFd& listener) {
  net::wait_for(listener.get(), POLLIN, soon(), "rank 1");
  return net::make_socket_stream(net::accept_from(listener.get()), "rank 1");
}

TEST(Encryption, a_membership_that_places_a_peer_on_this_host_does_not_talk_a_rank_into_plaintext) {
  const UniqueFd rendezvous = net::listen_on(net::parse_endpoint(kTcp));
  const UniqueFd door = net::listen_on(net::parse_endpoint(kTcp));
  Job job = make_jobs(2, kTcp)[1];
  job.rendezvous = net::local_endpoint(rendezvous.get());
  std::thread rank_one([&] {
    const auto group = join_group(job, {}, null_logger());
    const Error error = failure_of([&] { group->open_link(0, 1, soon()); });
    EXPECT_EQ(error.code(), ErrorCode::kAuthentication) << error.what();
  });
  const auto plain = accept(rendezvous);
  const auto tls = std::make_shared<net::TlsSession>(net::TlsSession::Side::kAcceptor, job.key, admit(*plain, job.key));
  for (short event = tls->advance(plain->fd()); event != 0; event = tls->advance(plain->fd())) {
    net::wait_for(plain->fd(), event, soon(), "rank 1");
  }
  const auto membership = net::make_tls_stream(UniqueFd(::dup(plain->fd())), tls, "rank 1");
  const Join join = decode_join(receive_message(*membership, soon()).payload);
  Member liar = join.member;
  liar.rank = 0;
  liar.process = 1;
  liar.endpoints = {net::local_endpoint(door.get())};
  const Bytes members = encode_members({{liar, join.member}, {true, true}});
  send_message(*membership, static_cast<std::uint16_t>(MessageType::kMembership),
               encode_membership({1, sha256(members), {}, {}}), soon());
  send_message(*membership, static_cast<std::uint16_t>(MessageType::kMembers), members, soon());
  const auto link = accept(door);
  admit(*link, job.key);
  std::byte first{};
  read_exactly(*link, {&first, 1}, soon());
  EXPECT_EQ(first, std::byte{22}) << "not the beginning of TLS";
  write_exactly(*link, Bytes(100, std::byte{'x'}), soon());  // Insists on plaintext.
  rank_one.join();
}

TEST(Encryption, a_rank_that_insists_on_plaintext_is_not_admitted_and_the_job_goes_on) {
  const auto jobs = make_jobs(2, kTcp);
  std::thread rank_zero([&] { run_jobs({jobs[0]}, exchange, kTwoHosts); });
  const auto stream = net::make_socket_stream(net::connect_to(jobs[0].rendezvous, soon()), "rank 0");
  const net::Hello hello{.rank = 1,
                         .purpose = static_cast<std::uint32_t>(Purpose::kMembership),
                         .channel = 0,
                         .epoch = 0,
                         .encrypts = true};
  prove_to_acceptor(*stream, jobs[1].key, hello, soon());
  send_message(*stream, static_cast<std::uint16_t>(MessageType::kJoin), encode_join({2, Member{}}), soon());
  const Error error = failure_of([&] {
    Bytes answer(1'000);  // An alert of TLS may come first.
    read_exactly(*stream, answer, soon());
  });
  EXPECT_EQ(error.code(), ErrorCode::kPeerLost) << error.what();
  run_jobs({jobs[1]}, exchange, kTwoHosts);
  rank_zero.join();
}

TEST(Encryption, a_rank_whose_job_says_otherwise_is_named_to_all) {
  for (const bool encrypts : {true, false}) {
    for (const char* kind : {"unix:@gyre-test", kTcp}) {
      auto jobs = make_jobs(3, kind);
      for (Job& job : jobs) job.encrypt = encrypts != (job.rank == 2);
      std::vector<std::thread> threads;
      for (const Job& job : jobs) {
        threads.emplace_back([&job] {
          const Error error = failure_of([&] { join_group(job, {}, null_logger()); });
          EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
          EXPECT_TRUE(contains(error.what(), "rank 2")) << error.what();
          EXPECT_TRUE(contains(error.what(), "set GYRE_TLS alike for all ranks")) << error.what();
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
}

/// A logger that keeps its lines.
struct Kept {
  std::ostringstream lines;
  Logger logger = std::make_shared<spdlog::logger>("kept", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines));
};

TEST(Encryption, a_plain_job_over_hosts_says_so_once) {
  auto jobs = make_jobs(2, kTcp);
  for (Job& job : jobs) job.encrypt = false;
  Kept kept;
  std::vector<std::thread> threads;
  for (const Job& job : jobs) {
    threads.emplace_back([&] {
      GroupOptions options;
      options.host_id = kTwoHosts[static_cast<std::size_t>(job.rank)];
      exchange(*join_group(job, options, kept.logger));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string lines = kept.lines.str();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  EXPECT_TRUE(contains(lines, "are not encrypted")) << lines;
}

TEST(Allow, an_address_that_is_not_allowed_is_kept_out_and_logged_once) {
  auto jobs = make_jobs(2, "tcp:127.0.0.2:0");  // To which others of this host connect from 127.0.0.1.
  jobs[0].allowed = net::parse_networks("10.0.0.0/8,fd00::/8", "allowed");
  Kept kept;
  GroupOptions options;
  options.join_timeout = milliseconds(600);
  std::thread rank_zero(
      [&] { EXPECT_EQ(failure_of([&] { join_group(jobs[0], options, kept.logger); }).code(), ErrorCode::kTimeout); });
  EXPECT_NE(failure_of([&] { join_group(jobs[1], options, null_logger()); }).code(), ErrorCode::kInternal);
  rank_zero.join();
  const std::string lines = kept.lines.str();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  EXPECT_TRUE(contains(lines, "refused a connection from 127.0.0.1")) << lines;

  jobs = make_jobs(2, "tcp:127.0.0.2:0");
  for (Job& job : jobs) job.allowed = net::parse_networks("127.0.0.0/30", "allowed");
  run_jobs(jobs, exchange, kTwoHosts);
}

TEST(Bind, a_rank_listens_where_it_is_bound) {
  auto jobs = make_jobs(2, kTcp);
  jobs[0].bind_address = "127.0.0.3";
  jobs[1].bind_address = "127.0.0.4";
  run_jobs(
      jobs,
      [](Group& group) {
        exchange(group);
        for (int rank = 0; rank < 2; ++rank) {
          EXPECT_EQ(group.topology().member(rank).endpoints.at(1).host, rank == 0 ? "127.0.0.3" : "127.0.0.4");
        }
      },
      kTwoHosts);
}

}  // namespace
}  // namespace gyre::group
