// Sockets: every kind of endpoint connects, waits for who is late, and says what is wrong.
#include "gyre/net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/net/notifier.h"
#include "gyre/net/stream.h"

namespace gyre::net {
namespace {

using std::chrono::milliseconds;

Deadline soon() { return Deadline::after(milliseconds(20'000)); }

Endpoint own_name(std::string_view what) {
  return parse_endpoint(fmt::format("unix:@gyre-test-{}-{}", what, ::getpid()));
}

UniqueFd wait_and_accept(const UniqueFd& listener) {
  wait_for(listener.get(), POLLIN, soon(), "a connection");
  return accept_from(listener.get());
}

Error failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return {ErrorCode::kInternal, ""};
}

TEST(Socket, every_kind_of_endpoint_carries_bytes) {
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("gyre-test-{}", ::getpid())).string();
  for (const std::string& text :
       {to_string(own_name("kinds")), "unix:" + path, std::string("tcp:127.0.0.1:0"), std::string("tcp:localhost:0")}) {
    SCOPED_TRACE(text);
    const UniqueFd listener = listen_on(parse_endpoint(text));
    const Endpoint endpoint = local_endpoint(listener.get());
    EXPECT_FALSE(accept_from(listener.get()));
    const auto client = make_socket_stream(connect_to(endpoint, soon()), "server");
    const auto server = make_socket_stream(wait_and_accept(listener), "client");
    write_exactly(*client, as_bytes("ping"), soon());
    Bytes received(4);
    read_exactly(*server, received, soon());
    EXPECT_EQ(as_text(received), "ping");
    EXPECT_EQ(to_string(peer_endpoint(client->fd())), to_string(endpoint));
    for (const int fd : {client->fd(), server->fd(), listener.get()}) {
      EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
      EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    }
  }
  std::filesystem::remove(path);
}

TEST(Socket, tcp_connections_find_dead_hosts_and_do_not_delay) {
  const UniqueFd listener = listen_on(parse_endpoint("tcp:127.0.0.1:0"));
  const UniqueFd client = connect_to(local_endpoint(listener.get()), soon());
  const UniqueFd server = wait_and_accept(listener);
  limit_unacknowledged(client.get());
  const auto option = [](const UniqueFd& fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof(value);
    EXPECT_EQ(::getsockopt(fd.get(), level, name, &value, &length), 0);
    return value;
  };
  for (const UniqueFd* fd : {&client, &server}) {
    EXPECT_EQ(option(*fd, IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(option(*fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(*fd, IPPROTO_TCP, TCP_KEEPIDLE), 5);
  }
  EXPECT_EQ(option(client, IPPROTO_TCP, TCP_USER_TIMEOUT), 11'000);
  EXPECT_EQ(option(server, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
}

TEST(Socket, a_connector_waits_for_a_listener_that_is_late) {
  const Endpoint endpoint = own_name("late");
  std::thread late([&] {
    ::poll(nullptr, 0, 50);
    const UniqueFd listener = listen_on(endpoint);
    EXPECT_TRUE(wait_and_accept(listener));
  });
  EXPECT_TRUE(connect_to(endpoint, soon()));
  late.join();
}

TEST(Socket, a_connector_gives_up_when_whoever_it_asks_between_its_tries_says_so) {
  int tries = 1;
  const auto give_up_soon = [&] {
    if (++tries == 3) throw Error(ErrorCode::kPeerLost, "nobody will come");
  };
  const Error error = failure_of([&] { connect_to(own_name("never"), soon(), give_up_soon); });
  EXPECT_STREQ(error.what(), "nobody will come");
}

TEST(Socket, nobody_listening_is_a_timeout_that_names_the_endpoint_and_the_last_try) {
  for (const Endpoint& endpoint : {own_name("nobody"), parse_endpoint("tcp:127.0.0.1:1")}) {
    const auto start = SteadyClock::now();
    const Error error = failure_of([&] { connect_to(endpoint, Deadline::after(milliseconds(40))); });
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find(to_string(endpoint)), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("refused"), std::string::npos) << error.what();
    EXPECT_LT(SteadyClock::now() - start, milliseconds(2'000));
  }
}

TEST(Socket, an_unknown_host_and_an_occupied_name_are_errors_that_name_them) {
  const Error unknown =
      failure_of([] { connect_to(parse_endpoint("tcp:no-such-host.invalid:1"), Deadline::after(milliseconds(10))); });
  EXPECT_NE(std::string(unknown.what()).find("no-such-host.invalid"), std::string::npos);
  const Endpoint endpoint = own_name("occupied");
  const UniqueFd first = listen_on(endpoint);
  const Error occupied = failure_of([&] { listen_on(endpoint); });
  EXPECT_NE(std::string(occupied.what()).find(to_string(endpoint)), std::string::npos);
}

TEST(Socket, the_kernel_tells_who_is_at_the_other_end) {
  const UniqueFd listener = listen_on(own_name("credentials"));
  const UniqueFd client = connect_to(local_endpoint(listener.get()), soon());
  const UniqueFd server = wait_and_accept(listener);
  for (const UniqueFd* fd : {&client, &server}) {
    EXPECT_EQ(peer_credentials(fd->get()).user, ::getuid());
    EXPECT_EQ(peer_credentials(fd->get()).process, ::getpid());
  }
}

TEST(Socket, a_descriptor_passes_over_a_unix_socket) {
  auto [left, right] = make_stream_pair({"a", "b"});
  const Notifier notifier;
  send_descriptor(left->fd(), notifier.fd(), soon());
  const UniqueFd received = receive_descriptor(right->fd(), soon());
  EXPECT_NE(::fcntl(received.get(), F_GETFD) & FD_CLOEXEC, 0);
  notifier.notify();
  EXPECT_NO_THROW(wait_for(received.get(), POLLIN, soon(), "the notifier"));
}

TEST(Socket, a_plain_byte_or_a_closed_end_instead_of_a_descriptor_is_an_error) {
  auto [left, right] = make_stream_pair({"a", "b"});
  write_exactly(*left, as_bytes("x"), soon());
  EXPECT_EQ(failure_of([&, &stream = *right] { receive_descriptor(stream.fd(), soon()); }).code(),
            ErrorCode::kProtocol);
  EXPECT_EQ(
      failure_of([&, &stream = *right] { receive_descriptor(stream.fd(), Deadline::after(milliseconds(10))); }).code(),
      ErrorCode::kTimeout);
  left.reset();
  EXPECT_EQ(failure_of([&, &stream = *right] { receive_descriptor(stream.fd(), soon()); }).code(),
            ErrorCode::kPeerLost);
}

/// Sends one byte with several descriptors, which send_descriptor() never does.
void send_descriptors(int socket_fd, const std::vector<int>& descriptors) {
  std::byte payload{1};
  iovec vector{&payload, 1};
  const std::size_t size_bytes = descriptors.size() * sizeof(int);
  std::vector<char> control(CMSG_SPACE(size_bytes));
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(size_bytes);
  std::memcpy(CMSG_DATA(header), descriptors.data(), size_bytes);
  ASSERT_EQ(::sendmsg(socket_fd, &message, MSG_NOSIGNAL), 1);
}

/// The lowest number that a new descriptor would get: it grows with every one that is leaked.
int lowest_free_descriptor() {
  const UniqueFd probe(::dup(STDERR_FILENO));
  return probe.get();
}

TEST(Socket, several_descriptors_where_one_is_expected_are_an_error_and_stay_nowhere) {
  auto [left, right] = make_stream_pair({"a", "b"});
  const Notifier notifier;
  const int before = lowest_free_descriptor();
  for (const std::size_t count : {2, 3, 5, 20}) {
    send_descriptors(left->fd(), std::vector<int>(count, notifier.fd()));
    EXPECT_EQ(failure_of([&, &stream = *right] { receive_descriptor(stream.fd(), soon()); }).code(),
              ErrorCode::kProtocol);
    EXPECT_EQ(lowest_free_descriptor(), before) << count << " descriptors";
  }
  send_descriptor(left->fd(), notifier.fd(), soon());
  EXPECT_TRUE(receive_descriptor(right->fd(), soon()));
}

TEST(Socket, a_descriptor_that_this_process_has_no_number_for_is_an_error_that_says_so) {
  auto [left, right] = make_stream_pair({"a", "b"});
  const Notifier notifier;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free_descriptor()), .rlim_max = limit.rlim_max};
  send_descriptor(left->fd(), notifier.fd(), soon());
  send_descriptor(left->fd(), notifier.fd(), soon());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Error failure = failure_of([&, &stream = *right] { receive_descriptor(stream.fd(), soon()); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(failure.code(), ErrorCode::kResourceExhausted) << failure.what();
  EXPECT_TRUE(receive_descriptor(right->fd(), soon()));  // The connection goes on with the next one.
}

TEST(Notifier, stays_readable_until_it_is_cleared) {
  const Notifier notifier;
  EXPECT_THROW(wait_for(notifier.fd(), POLLIN, Deadline::after(milliseconds(5)), "it"), Error);
  notifier.notify();
  notifier.notify();
  EXPECT_NO_THROW(wait_for(notifier.fd(), POLLIN, soon(), "it"));
  EXPECT_NO_THROW(wait_for(notifier.fd(), POLLIN, soon(), "it"));
  notifier.clear();
  EXPECT_THROW(wait_for(notifier.fd(), POLLIN, Deadline::after(milliseconds(5)), "it"), Error);
}

}  // namespace
}  // namespace gyre::net
