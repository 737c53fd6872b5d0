// The root of a docker container: a number that is read wrongly gives it somebody else's files.
#include "gyre/jobs/node/container_root.h"

#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::jobs::node {
namespace {

TEST(ContainerRoot, is_four_numbers_and_nothing_else) {
  const ContainerRoot root = parse_container_root("1000:100:1879048192:65535");
  EXPECT_EQ(root.user, 1000U);
  EXPECT_EQ(root.group, 100U);
  EXPECT_EQ(root.first_other, 1'879'048'192U);
  EXPECT_EQ(root.others, 65'535U);
  for (const char* wrong :
       {"", "1", "1:2:3", "1:2:3:", "1:2:3:4:", "1:2:3:4 ", ":2:3:4", "1:-2:3:4", "1:2:3:4294967296"}) {
    EXPECT_THROW(parse_container_root(wrong), Error) << wrong;
  }
}

TEST(ContainerRoot, has_the_variables_of_its_image_in_place_of_its_runtimes) {
  const std::vector<std::string> environment = {"image.PATH=/opt/bin", "PATH=/bin", "HOME=/root", "image.A=b=c"};
  EXPECT_EQ(with_variables_of_image(environment), (std::vector<std::string>{"A=b=c", "HOME=/root", "PATH=/opt/bin"}));
}

TEST(ContainerRoot, waits_for_its_folder_until_the_deadline) {
  await_folder("/", Deadline::after(std::chrono::seconds(0)));
  EXPECT_THROW(await_folder("/no/such/folder", Deadline::after(std::chrono::seconds(0))), Error);
}

}  // namespace
}  // namespace gyre::jobs::node
