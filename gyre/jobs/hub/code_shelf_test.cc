#include "gyre/jobs/hub/code_shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::hub {
namespace {

namespace message_type = orders::message_type;
using orders::CodeRequest;
using testing::HasSubstr;

class CodeShelfTest : public testing::Test {
 protected:
  CodeShelfTest() {
    std::string name = "/tmp/gyre-shelf-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    std::ofstream(folder_ / "code.tar") << "0123456789";
    order_.attempt = "job-1";
    order_.code_sha256 = std::string(64, 'a');
    order_.code_archive = folder_ / "code.tar";
    order_.nodes = {{.id = "n0", .address = ""},
                    {.id = "n1", .address = "", .cores = 1, .gpus = 0, .registered_as = "job-1-1"}};
    shelf_.expect(order_);
  }
  ~CodeShelfTest() override { std::filesystem::remove_all(folder_); }

  CodeRequest request(std::uint64_t offset, std::uint64_t bytes) const {
    return {.attempt = "job-1", .sha256 = order_.code_sha256, .offset = offset, .bytes = bytes};
  }
  net::Message ask(const std::string& node, const CodeRequest& request) const {
    net::MessageParser parser;
    parser.append(*shelf_.answer(node, request));
    return parser.next().value();
  }
  std::string refusal(const std::string& node, const CodeRequest& request) const {
    const net::Message answer = ask(node, request);
    EXPECT_EQ(answer.type, message_type::kCodeRefused);
    return orders::code_refusal_from(answer).why;
  }

  std::filesystem::path folder_;
  orders::WorkOrder order_;
  CodeShelf shelf_;
};

TEST_F(CodeShelfTest, a_range_is_answered_with_its_bytes_and_the_whole_length) {
  const net::Message answer = ask("job-1-1", request(7, 100));
  ASSERT_EQ(answer.type, message_type::kCodeBytes);
  const orders::CodePiece piece = orders::code_piece_from(answer);
  EXPECT_EQ(as_text(piece.bytes), "789");
  EXPECT_EQ(piece.offset, 7U);
  EXPECT_EQ(piece.total, 10U);
  EXPECT_EQ(as_text(orders::code_piece_from(ask("n0", request(10, 100))).bytes), "");
}

// A node holds the key of the service's nodes; that is no reason to give it the code of jobs that are not its own.
TEST_F(CodeShelfTest, a_node_gets_no_code_but_that_of_its_attempt_while_it_runs) {
  EXPECT_THAT(refusal("n2", request(0, 1)), HasSubstr("has no such code"));
  CodeRequest other = request(0, 1);
  other.sha256 = std::string(64, 'b');
  EXPECT_THAT(refusal("n0", other), HasSubstr("has no such code"));
  shelf_.release("job-1");
  EXPECT_THAT(refusal("n0", request(0, 1)), HasSubstr("has no such code"));
}

TEST_F(CodeShelfTest, an_archive_that_has_gone_is_refused_by_its_name) {
  std::filesystem::remove(folder_ / "code.tar");
  EXPECT_THAT(refusal("n0", request(0, 1)), HasSubstr("does not have the archive aaaa"));
}

}  // namespace
}  // namespace gyre::jobs::hub
