// A server that runs for years must not fill its disk with what nobody looks at, nor lose what somebody still needs;
// and what it knows must be there again after its disk was lost.
#include <fcntl.h>

#include <thread>

#include "gyre/jobs/catalog/catalog.h"
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

constexpr std::int64_t kDayUs = std::int64_t{86'400} * 1'000'000;
const std::string kCode(64, 'a');

class RetentionTest : public JobServiceTest {
 protected:
  RetentionTest() {
    service_.reset();
    options_.wall_clock = [this] { return wall_clock_us() + shift_us_; };
    options_.keep_jobs = std::chrono::days(10);
    options_.keep_events = std::chrono::days(5);
    options_.keep_code = std::chrono::days(2);
    start();
    make_cluster(1);
  }
  ~RetentionTest() override { service_.reset(); }

  void upload() {
    const fs::path file = folder_.path() / "upload";
    std::ofstream(file) << std::string(1024, '\0');  // An archive of nothing.
    service_->store_code({"ada", false}, "w", kCode, UniqueFd(::open(file.c_str(), O_RDONLY | O_CLOEXEC)), 1024);
  }
  bool code_is_there() const {
    for (const auto& workspace : fs::directory_iterator(options_.folder / "code")) {
      if (fs::exists(workspace.path() / (kCode + ".tar"))) return true;
    }
    return false;
  }
  /// The file's own time is the real one.
  void age_code() const {
    for (const auto& file : fs::recursive_directory_iterator(options_.folder / "code")) {
      if (file.is_regular_file()) {
        fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(25));
      }
    }
  }
  void days_later(int days) {
    service_.reset();
    shift_us_ += days * kDayUs;
    age_code();
    start();
  }
  bool is_gone(const std::string& name) {
    try {
      service_->job(named(name));
      return false;
    } catch (const resources::ServiceError&) {
      return true;
    }
  }
  std::string all_events() {
    std::string text;
    for (const resources::Event& event : service_->events({"w", "", "", ""}, 0, 1'000)) text += event.name + " ";
    return text;
  }

  std::int64_t shift_us_ = 0;
};

TEST_F(RetentionTest, ended_jobs_events_and_code_go_after_their_time_and_those_of_unfinished_jobs_stay) {
  upload();
  const auto with_code = [&](const std::string& name) {
    service_->submit(named(name), {job_of(1, "true"), kCluster, kCode});
  };
  service_->scale_cluster(kCluster, spec::ManualScale{0});
  with_code("waits");
  with_code("ended");
  service_->terminate(named("ended"));
  submit("plain", job_of(1, "true"));
  service_->terminate(named("plain"));
  days_later(3);
  EXPECT_TRUE(code_is_there());  // Of the job that waits.
  EXPECT_THAT(all_events(), HasSubstr("ended "));
  service_->terminate(named("waits"));
  days_later(1);
  EXPECT_TRUE(code_is_there());
  days_later(2);
  EXPECT_TRUE(wait_until([&] { return !code_is_there(); }));
  EXPECT_TRUE(wait_until([&] { return all_events().find("ended ") == std::string::npos; }));
  EXPECT_FALSE(is_gone("ended"));
  days_later(5);
  EXPECT_TRUE(wait_until([&] { return is_gone("ended") && is_gone("plain"); }));
  EXPECT_FALSE(is_gone("waits"));
}

TEST_F(RetentionTest, the_events_and_the_code_of_a_job_that_has_not_finished_stay_for_ever) {
  upload();
  service_->scale_cluster(kCluster, spec::ManualScale{0});
  service_->submit(named("waits"), {job_of(1, "true"), kCluster, kCode});
  const std::string before = events_of("waits");
  days_later(1'000);
  submit("new", job_of(1, "true"));
  EXPECT_TRUE(wait_until([&] { return all_events().find("default") == std::string::npos; }));
  EXPECT_EQ(events_of("waits"), before);
  EXPECT_TRUE(code_is_there());
}

TEST_F(RetentionTest, a_backup_that_was_made_while_jobs_ran_is_a_server_that_goes_on) {
  submit("before", job_of(1, "true"));
  EXPECT_EQ(ended("before").execution_state, ExecutionState::kSucceeded);
  const fs::path backup = folder_.path() / "backup.db";
  std::atomic<bool> enough{false};
  std::thread writer([&] {
    for (int i = 0; !enough; ++i) service_->create_experiment({"w", fmt::format("e-{}", i)});
  });
  EXPECT_TRUE(wait_until([&] { return service_->experiments("w", {}).items.size() > 5; }));
  submit("queued", job_of(1, "echo restored"));
  const std::size_t known = service_->experiments("w", {.limit = 1'000}).items.size();
  catalog::Catalog::back_up(options_.folder / "catalog.db", backup);
  enough = true;
  writer.join();
  EXPECT_EQ(fs::status(backup).permissions(), fs::perms(0600));
  EXPECT_THROW(catalog::Catalog::back_up(options_.folder / "catalog.db", backup), Error);
  ended("queued");
  service_.reset();
  end_nodes(options_.folder);

  options_.folder = folder_.path() / "restored";
  fs::create_directories(options_.folder);
  fs::permissions(options_.folder, fs::perms(0711));
  fs::copy_file(backup, options_.folder / "catalog.db");
  start();
  EXPECT_EQ(state_of("before"), ExecutionState::kSucceeded);
  EXPECT_GE(service_->experiments("w", {.limit = 1'000}).items.size(), known);
  EXPECT_EQ(ended("queued").execution_state, ExecutionState::kSucceeded) << events_of("queued");
  EXPECT_EQ(log_of("queued"), "restored\nrestored\n");  // Here as well as on the server that was not lost at all.
}

}  // namespace
}  // namespace gyre::jobs::service
