// A data file comes from anywhere: these tests show that the two dialects that exist are read and that nothing else is.
#include "gyre/data/formats/pickle_subset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::data {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = PickleObject::Kind;

/// What Python 2's cPickle (protocol 2) writes for {'labels': [6, 9], 'data': uint8 array 1x3}, as in CIFAR-10's files.
std::string python2_pickle() {
  return "\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x06K\x09"s
         "eU\x04"s
         "dataq\x04"s
         "cnumpy.core.multiarray\n_reconstruct\nq\x05"s
         "cnumpy\nndarray\nq\x06K\x00\x85U\x01"s
         "b\x87Rq\x07(K\x01K\x01K\x03\x86"s
         "cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01\x87Rq\x09(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"s
         "\x89T\x03\x00\x00\x00\x01\xc8\xfftbu."s;
}

/// What Python 3.11 with numpy 2 writes for the same with pickle.dump(..., protocol=2).
std::string python3_pickle() {
  return "\x80\x02}q\x00(X\x06\x00\x00\x00labelsq\x01]q\x02(K\x06K\x09"s
         "eX\x04\x00\x00\x00"s
         "dataq\x03"s
         "cnumpy._core.multiarray\n_reconstruct\nq\x04"s
         "cnumpy\nndarray\nq\x05K\x00\x85q\x06"s
         "c_codecs\nencode\nq\x07X\x01\x00\x00\x00"s
         "bq\x08X\x06\x00\x00\x00latin1q\x09\x86q\nRq\x0b\x87q\x0cRq\x0d(K\x01K\x01K\x03\x86q\x0e"s
         "cnumpy\ndtype\nq\x0fX\x02\x00\x00\x00u1q\x10\x89\x88\x87q\x11Rq\x12(K\x03X\x01\x00\x00\x00|q\x13NNN"s
         "J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x14"s
         "b\x89h\x07X\x05\x00\x00\x00\x01\xc3\x88\xc3\xbfq\x15h\x09\x86q\x16Rq\x17tq\x18"s
         "bu."s;
}

void expect_the_example(const PickleDocument& document) {
  const PickleObject& root = document.objects[document.root];
  const PickleObject* labels = document.find(root, "labels");
  const PickleObject* array = document.find(root, "data");
  ASSERT_NE(labels, nullptr);
  ASSERT_NE(array, nullptr);
  EXPECT_EQ(labels->kind, Kind::kList);
  ASSERT_EQ(labels->items.size(), 2U);
  EXPECT_EQ(document.objects[labels->items[0]].integer, 6);
  EXPECT_EQ(document.objects[labels->items[1]].integer, 9);
  EXPECT_EQ(array->kind, Kind::kArray);
  EXPECT_THAT(array->shape, ElementsAre(1, 3));
  EXPECT_EQ(array->text, "\x01\xc8\xff");
}

/// The failure's message, and "" when there is none.
std::string failure_of(const std::string& pickle) {
  try {
    parse_pickle(as_bytes(pickle), "batch");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PickleSubset, reads_what_python_2_writes) {
  const std::string pickle = python2_pickle();
  const PickleDocument document = parse_pickle(as_bytes(pickle), "batch");
  expect_the_example(document);
  EXPECT_TRUE(document.decoded.empty()) << "the array's bytes are used where they stand";
}

TEST(PickleSubset, reads_what_python_3_writes_in_protocol_2) {
  const std::string pickle = python3_pickle();
  expect_the_example(parse_pickle(as_bytes(pickle), "batch"));
}

TEST(PickleSubset, a_call_of_anything_else_is_named_and_not_made) {
  const std::string message = failure_of(
      "\x80\x02"s
      "cposix\nsystem\nU\x04true\x85R."s);
  EXPECT_THAT(message, HasSubstr("posix.system"));
  EXPECT_THAT(message, HasSubstr("nothing is executed"));
  EXPECT_THAT(message, HasSubstr("batch"));
}

TEST(PickleSubset, an_unknown_opcode_is_named_with_its_offset) {
  const std::string message = failure_of("\x80\x02}o."s);
  EXPECT_THAT(message, HasSubstr("0x6f 'o' at offset 3"));
}

TEST(PickleSubset, a_newer_protocol_says_how_to_write_the_older) {
  EXPECT_THAT(failure_of("\x80\x05."s), HasSubstr("protocol=2"));
}

TEST(PickleSubset, every_cut_of_a_good_file_is_one_clear_error) {
  for (const std::string& pickle : {python2_pickle(), python3_pickle()}) {
    for (std::size_t length = 0; length < pickle.size(); ++length) {
      EXPECT_THAT(failure_of(pickle.substr(0, length)), HasSubstr("batch")) << "cut at " << length;
    }
  }
}

TEST(PickleSubset, damaged_bytes_never_do_more_than_fail) {
  // Every outcome but a crash is right (a flipped pixel is still a pixel); sanitizers watch this test.
  constexpr std::uint64_t kSeed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string pickle = i % 2 == 0 ? python2_pickle() : python3_pickle();
    for (int changes = 0; changes < 3; ++changes) {
      pickle[random.below(pickle.size())] = static_cast<char>(random.next_u32());
    }
    refused += failure_of(pickle).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 10'000);
}

TEST(PickleSubset, one_text_decoded_again_and_again_is_refused) {
  std::string pickle =
      "\x80\x02"s
      "c_codecs\nencode\nq\x00X\x06\x00\x00\x00latin1q\x01X\x00\x01\x00\x00"s +
      std::string(256, 'a') + "q\x02"s;
  for (int i = 0; i < 100; ++i) pickle += "h\x00h\x02h\x01\x86R"s;
  EXPECT_THAT(failure_of(pickle + "."), HasSubstr("again and again"));
}

TEST(PickleSubset, an_array_that_claims_more_than_it_brings_is_refused) {
  std::string pickle = python2_pickle();
  const std::size_t shape = pickle.find("K\x01K\x03\x86"s);
  ASSERT_NE(shape, std::string::npos);
  pickle[shape + 3] = 2;
  EXPECT_THAT(failure_of(pickle), HasSubstr("an array of 2 elements with 3 bytes"));
}

}  // namespace
}  // namespace gyre::data
