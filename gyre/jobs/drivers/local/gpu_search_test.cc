// Which GPUs a machine has decides what jobs see. Files and programs of the test's stand for them: no GPU is needed.
#include "gyre/jobs/drivers/local/internal/gpu_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/jobs/drivers/test_support.h"

namespace gyre::jobs::drivers::local::internal {
namespace {

using conformance::write_file;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GpuSearch : public testing::Test {
 protected:
  void add_devices(int count) {
    for (int i = 0; i < count; ++i) write_file(devices() / ("nvidia" + std::to_string(i)), "");
    for (const char* other : {"nvidiactl", "nvidia-uvm", "null"}) write_file(devices() / other, "");
  }
  /// What nvidia-smi of this machine does.
  void add_program(const std::string& script) {
    write_file(folder_.path() / "bin/nvidia-smi", "#!/bin/bash\n" + script + "\n");
  }
  FoundGpus found(node::Variables more = {}) {
    more["PATH"] = (folder_.path() / "bin").string() + ":/usr/bin:/bin";
    return find_machine_gpus(more, devices(), limit_);
  }
  std::string problem_after(const std::string& script) {
    add_program(script);
    const FoundGpus gpus = found();
    EXPECT_THAT(gpus.names, IsEmpty());
    return gpus.problem;
  }
  std::filesystem::path devices() const { return folder_.path() / "dev"; }

  conformance::PublicFolder folder_;
  std::chrono::milliseconds limit_{10'000};
};

TEST_F(GpuSearch, finds_the_uuids_that_nvidia_smi_prints) {
  add_devices(2);
  add_program("[ \"$*\" = '--query-gpu=index,uuid --format=csv,noheader' ] && printf '0, GPU-a-1\\n1, GPU-b-2\\n'");
  const FoundGpus gpus = found();
  EXPECT_THAT(gpus.names, ElementsAre("GPU-a-1", "GPU-b-2"));
  EXPECT_EQ(gpus.problem, "");
}

// Most machines have no GPU, and must not pay for the question.
TEST_F(GpuSearch, asks_no_program_where_there_is_no_device_file) {
  add_devices(0);
  add_program("touch " + (folder_.path() / "asked").string() + "; echo 0, GPU-a");
  const FoundGpus gpus = found();
  EXPECT_THAT(gpus.names, IsEmpty());
  EXPECT_EQ(gpus.problem, "");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "asked"));
}

TEST_F(GpuSearch, counts_device_files_where_there_is_no_nvidia_smi) {
  add_devices(3);
  const FoundGpus gpus = find_machine_gpus({{"PATH", (folder_.path() / "bin").string()}}, devices(), limit_);
  EXPECT_THAT(gpus.names, ElementsAre("0", "1", "2"));
  EXPECT_EQ(gpus.problem, "");
}

// Two jobs would share a GPU that is named twice; CUDA looks at nothing behind an entry that is none.
TEST_F(GpuSearch, takes_the_services_own_mask_as_cuda_does) {
  const auto under = [&](const std::string& mask) { return found({{"CUDA_VISIBLE_DEVICES", mask}}).names; };
  EXPECT_THAT(under("3,GPU-x, 5 "), ElementsAre("3", "GPU-x", "5"));
  EXPECT_THAT(under("0,-1,1"), ElementsAre("0"));
  EXPECT_THAT(under("0,,1"), ElementsAre("0"));
  for (const char* none : {"", "-1", "NoDevFiles", "3,3"}) EXPECT_THAT(under(none), IsEmpty()) << none;
}

TEST_F(GpuSearch, says_what_is_wrong_with_nvidia_smi_and_counts_none) {
  add_devices(2);
  EXPECT_THAT(problem_after("echo 'NVIDIA-SMI has failed'; exit 9"), HasSubstr("exit code 9: 'NVIDIA-SMI has failed'"));
  EXPECT_THAT(problem_after("echo 0, GPU-a; echo 'Unable to determine the device handle'"),
              HasSubstr("printed 'Unable to determine the device handle' in place of GPUs"));
  EXPECT_THAT(problem_after("echo '0, [N/A]'"), HasSubstr("'0, [N/A]'"));
  EXPECT_THAT(problem_after("exit 0"), HasSubstr("printed nothing"));
  EXPECT_THAT(problem_after("head -c 200000 /dev/zero | tr '\\0' x"), HasSubstr("nvidia-smi"));
  EXPECT_THAT(problem_after("kill -9 $$"), HasSubstr("exit code 137"));
}

TEST_F(GpuSearch, does_not_wait_for_an_nvidia_smi_that_hangs) {
  add_devices(1);
  limit_ = std::chrono::milliseconds(100);
  const auto begin = SteadyClock::now();
  EXPECT_THAT(problem_after("echo 0, GPU-a; sleep 60"), HasSubstr("has not ended within 0.1 s"));
  EXPECT_THAT(problem_after("exec >&- 2>&-; sleep 60"), HasSubstr("has not ended within 0.1 s"));
  EXPECT_LT(SteadyClock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace gyre::jobs::drivers::local::internal
