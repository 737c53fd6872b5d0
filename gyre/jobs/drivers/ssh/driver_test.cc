// Jobs on hosts behind ssh must behave as on virtual nodes: the same suite, against real sshd that
// tests/e2e/ssh_driver_test.py starts: GYRE_TEST_SSH names their folder, GYRE_TEST_SSH_KEYS their keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "gyre/base/error.h"
#include "gyre/jobs/drivers/driver_conformance.h"
#include "gyre/jobs/drivers/engine_driver.h"
#include "gyre/jobs/drivers/ssh/engine.h"
#include "gyre/jobs/drivers/ssh/options.h"

namespace gyre::jobs::drivers {
namespace {

namespace fs = std::filesystem;

/// Hosts, each an sshd with an address and a /…/local of its own.
class SshFixture final : public conformance::EngineFixture<ssh::SshOptions> {
 public:
  explicit SshFixture(const fs::path& folder) : SshFixture(folder, std::getenv("GYRE_TEST_SSH")) {}
  ~SshFixture() override {
    end();
    ssh::SshEngine engine(options_);
    EXPECT_TRUE(conformance::wait_until([&] {
      const std::vector<Holding> left = engine.list();
      for (const Holding& holding : left) {
        if (!holding.is_over()) engine.release(holding.id);
      }
      return std::ranges::all_of(left, &Holding::is_over);
    }));
    EXPECT_TRUE(conformance::wait_until([&] { return roots().empty(); }));
  }
  SshFixture(const SshFixture&) = delete;
  SshFixture& operator=(const SshFixture&) = delete;

 private:
  SshFixture(const fs::path& folder, const fs::path& cluster)
      : EngineFixture(folder, ssh::options_from({{"hosts", "h1, h2, h3"},
                                                 {"host_keys", std::getenv("GYRE_TEST_SSH_KEYS")},
                                                 {"ssh_config", (cluster / "ssh_config").string()},
                                                 {"node_folder", (cluster / "local").string()}})),
        cluster_(cluster) {
    options_.program = GYRE_PROGRAM;
    options_.environment["HOME"] = "/";
    fs::create_directories(options_.folder);
    start();
  }

  std::unique_ptr<Driver> make_driver() const override {
    return std::make_unique<EngineDriver>("ssh", options_, std::make_shared<ssh::SshEngine>(options_));
  }
  std::vector<fs::path> roots() const override {
    std::vector<fs::path> found;
    for (const auto& host : fs::directory_iterator(cluster_ / "nodes")) add_folders(host.path(), found);
    std::erase_if(found, [](const fs::path& root) { return !root.filename().string().starts_with("gyre-"); });
    return found;
  }

  fs::path cluster_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Ssh, DriverConformance, SshFixture);

}  // namespace
}  // namespace gyre::jobs::drivers
