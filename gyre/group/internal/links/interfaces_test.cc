// GYRE_INTERFACES comes from a person: a name that is wrong must be told with those that would be right.
#include "gyre/group/internal/links/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::group {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename Call>
std::string failure_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no failure";
}

TEST(InterfacesTest, are_named_once_each) {
  EXPECT_THAT(parse_interfaces("eth0"), ElementsAre("eth0"));
  EXPECT_THAT(parse_interfaces("ib1,eth0"), ElementsAre("ib1", "eth0"));
  for (const char* text : {"eth0,", ",", "eth0,,eth1", "eth0,eth1,eth0"}) {
    EXPECT_THAT(failure_of([&] { parse_interfaces(text); }),
                AllOf(HasSubstr("GYRE_INTERFACES is '"), HasSubstr(text), HasSubstr("each once")));
  }
  EXPECT_THAT(failure_of([] { parse_interfaces("a,b,c,d,e,f,g,h"); }),
              HasSubstr("names 8 network interfaces; at most 7"));
}

TEST(InterfacesTest, have_the_address_that_others_connect_to) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_THAT(failure_of([] { address_of_interface("nowhere7"); }),
              AllOf(HasSubstr("names 'nowhere7'"), HasSubstr("lo (127.0.0.1)")));
}

}  // namespace
}  // namespace gyre::group
