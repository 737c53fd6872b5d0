// Who may submit, and as which account: a job that ran as somebody else's would read and write their files.
#include "gyre/jobs/resources/service_error.h"
#include "gyre/jobs/service/service_test_support.h"

namespace gyre::jobs::service {
namespace {

/// A machine with the accounts root, ada and robert.
class AccountsTest : public JobServiceTest {
 protected:
  AccountsTest() {
    options_.submitters = Submitters::kAccounts;
    options_.account_number = [](const std::string& name) -> std::optional<uid_t> {
      if (name == "root" || name == "toor") return 0;
      return name == "ada" || name == "robert" ? std::optional<uid_t>(20'000) : std::nullopt;
    };
    restart();
    make_cluster(0);
  }

  resources::Job submit_as(const std::string& user, const std::string& name) {
    return service_->submit(named(name), {job_of(1, "true"), kCluster, "", {user, false}}).item;
  }
  /// The code and the words of the error.
  static std::string refusal(const std::function<void()>& act) {
    try {
      act();
    } catch (const resources::ServiceError& error) {
      return fmt::format("{}: {}", error.name(), error.what());
    }
    return "it was allowed";
  }
};

TEST_F(AccountsTest, a_job_has_its_submitters_account_from_the_moment_it_is_submitted) {
  service_->create_user({"ada"});
  service_->create_user({"bob", false, "robert"});
  EXPECT_EQ(submit_as("ada", "a").account, "ada");
  EXPECT_EQ(submit_as("bob", "b").account, "robert");
  service_->change_user("ada", {.account = ""});
  EXPECT_EQ(refusal([&] { service_->change_user("ada", {.account = "robert"}); }),
            "AccountTaken: account 'robert' is that of user 'bob'; each user needs an account of their own");
  EXPECT_EQ(refusal([&] { service_->create_user({"robert"}); }).substr(0, 12), "AccountTaken");
  service_->delete_user("bob");
  service_->change_user("ada", {.account = "robert"});
  EXPECT_EQ(service_->job(named("a")).account, "ada");
  EXPECT_EQ(submit_as("ada", "c").account, "robert");
}

TEST_F(AccountsTest, the_same_job_of_another_user_is_another_job) {
  service_->create_user({"ada"});
  service_->create_user({"bob", false, "robert"});
  EXPECT_EQ(submit_as("ada", "a").uuid, submit_as("ada", "a").uuid);
  EXPECT_THAT(refusal([&] { submit_as("bob", "a"); }), HasSubstr("JobExists"));
}

TEST_F(AccountsTest, whoever_has_no_account_or_roots_submits_nothing) {
  service_->create_user({"eve"});
  EXPECT_THAT(refusal([&] { submit_as("eve", "a"); }),
              AllOf(HasSubstr("NoAccount: "), HasSubstr("the server's machine has no account 'eve'"),
                    HasSubstr("gyre user change eve --account ACCOUNT")));
  EXPECT_THAT(refusal([&] { submit_as("", "a"); }), HasSubstr("UserNotFound"));
  service_->create_user({"toor"});  // Named as an account that is root's second name.
  EXPECT_THAT(refusal([&] { submit_as("toor", "a"); }), HasSubstr("account 'toor' is root, as which no job runs"));
  for (const char* account : {"root", "toor", "nosuch"}) {
    EXPECT_THAT(refusal([&] { service_->change_user("eve", {.account = account}); }), HasSubstr("AccountNotUsable"));
    EXPECT_THAT(refusal([&] { service_->create_user({"x", false, account}); }), HasSubstr("AccountNotUsable"));
  }
  EXPECT_TRUE(service_->jobs("w", {}, {}).items.empty());
  // Root's own jobs run as the account that the service has for them.
  service_->create_user({"root", true});
  EXPECT_EQ(submit_as("root", "a").account, "");
}

TEST_F(AccountsTest, where_all_jobs_have_one_account_only_the_trusted_change_anything) {
  EXPECT_THAT(refusal([&] { service_->create_user({"ada", false, "", true}); }), HasSubstr("TrustHasNoEffect"));
  options_.submitters = Submitters::kTrusted;
  restart();
  service_->create_user({"ada"});
  service_->create_user({"max", true});
  const std::string why = refusal([&] { service_->check_may_change({"ada"}); });
  EXPECT_THAT(why, AllOf(HasSubstr("NotTrusted: user 'ada' may only look: all jobs of this server run as account"),
                         HasSubstr("gyre user change ada --trusted")));
  EXPECT_NO_THROW(service_->check_may_change({"max", true}));
  service_->change_user("ada", {.is_trusted = true});
  EXPECT_NO_THROW(service_->check_may_change({"ada"}));
  EXPECT_EQ(submit_as("ada", "a").account, "");
}

TEST_F(AccountsTest, one_user_fills_a_part_of_the_queue_and_another_one_still_submits) {
  options_.queued_jobs_per_user = 3;
  restart();
  service_->create_user({"ada"});
  service_->create_user({"bob", false, "robert"});
  for (const char* name : {"a1", "a2", "a3"}) submit_as("ada", name);
  EXPECT_THAT(refusal([&] { submit_as("ada", "a4"); }),
              HasSubstr("TooManyQueuedJobs: 3 jobs of user 'ada' wait already"));
  EXPECT_EQ(submit_as("ada", "a3").name.job, "a3");  // Asked for again.
  submit_as("bob", "b1");
  service_->terminate(named("a1"));
  submit_as("ada", "a4");
}

}  // namespace
}  // namespace gyre::jobs::service
