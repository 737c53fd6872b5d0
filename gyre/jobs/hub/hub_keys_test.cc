// Who may connect to a hub, over a real connection: nodes with the service's key, or with that of an attempt.
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "gyre/base/error.h"
#include "gyre/jobs/hub/hub.h"
#include "gyre/jobs/orders/messages.h"
#include "gyre/jobs/orders/secure_connection.h"

namespace gyre::jobs::hub {
namespace {

class HubKeysTest : public testing::Test {
 protected:
  HubKeysTest() {
    std::string name = "/tmp/gyre-hub-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    options_.endpoint = {net::Endpoint::Kind::kUnix, (folder_ / "hub.sock").string(), 0};
    options_.key = net::make_random_key();
    hub_ = std::make_unique<Hub>(options_);
    orders::WorkOrder order;
    order.attempt = "job-1";
    order.nodes = {{.id = "n0", .address = ""}};
    hub_->submit(order);
    hub_->admit();
  }
  ~HubKeysTest() override {
    hub_.reset();
    std::filesystem::remove_all(folder_);
  }

  bool is_welcome(const net::JobKey& key, const std::string& node) const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    try {
      const orders::Door door{.purpose = orders::Purpose::kService, .key = orders::key_number(key)};
      orders::MessagePipe pipe(connect_securely(options_.endpoint, key, door, deadline));
      orders::Registration registration;
      registration.node = node;
      pipe.send(orders::message_type::kRegister, as_bytes(encode(registration)));
      for (;;) {
        if (const auto message = pipe.receive()) return message->type == orders::message_type::kWelcome;
        pollfd wait{.fd = pipe.fd(), .events = POLLIN, .revents = 0};
        ::poll(&wait, 1, deadline.poll_timeout_ms());
      }
    } catch (const Error&) {
      return false;
    }
  }

  std::filesystem::path folder_;
  HubOptions options_;
  std::unique_ptr<Hub> hub_;
};

TEST_F(HubKeysTest, the_services_key_lets_every_node_in_and_that_of_an_attempt_its_own_nodes_until_its_end) {
  const net::JobKey of_attempt = key_of_nodes(options_.key, "job-1");
  EXPECT_TRUE(is_welcome(options_.key, "n1"));
  EXPECT_TRUE(is_welcome(of_attempt, "n0"));
  EXPECT_FALSE(is_welcome(of_attempt, "n1"));
  EXPECT_FALSE(is_welcome(key_of_nodes(options_.key, "job-2"), "n0"));
  EXPECT_FALSE(is_welcome(net::make_random_key(), "n0"));
  hub_->acknowledge("job-1");
  EXPECT_FALSE(is_welcome(of_attempt, "n0"));
}

}  // namespace
}  // namespace gyre::jobs::hub
