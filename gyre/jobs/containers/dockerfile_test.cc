// The builder of images is root, and a Dockerfile anybody's: nothing may reach the builder that has not been looked at,
// and nothing of the machine may be asked for.
#include "gyre/jobs/containers/dockerfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gyre/base/error.h"

namespace gyre::jobs::containers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(Dockerfile(text));
    return "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
}

TEST(dockerfile, is_handed_on_with_one_instruction_a_line_and_images_by_their_ids) {
  const Dockerfile file(
      "# syntax=docker/dockerfile:1\n"
      "ARG TAG=3.12\n"
      "from python:${TAG}-slim as Build\r\n"
      "RUN pip wheel -w /w \\\n"
      "  # a comment\n"
      "\n"
      "    numpy==2.1 \\\n"
      "    pandas\n"
      "FROM python:$TAG-slim\n"
      "COPY --from=build --chown=1:1 /w /w\n"
      "COPY --from=busybox:1 /bin/sh /sh\n"
      "COPY --from=0 /x /x\n"
      "FROM build\n"
      "FROM scratch\n"
      "ENV A=$B\n");
  EXPECT_THAT(file.images(), ElementsAre("python:3.12-slim", "busybox:1"));
  EXPECT_EQ(file.text({{"python:3.12-slim", "aaaa"}, {"busybox:1", "bbbb"}}, "LABEL l=\"1\"\n"),
            "ARG TAG=3.12\n"
            "FROM aaaa AS build\n"
            "LABEL l=\"1\"\n"
            "RUN pip wheel -w /w     numpy==2.1     pandas\n"
            "FROM aaaa\n"
            "LABEL l=\"1\"\n"
            "COPY --from=build --chown=1:1 /w /w\n"
            "COPY --from=bbbb /bin/sh /sh\n"
            "COPY --from=0 /x /x\n"
            "FROM build\n"
            "LABEL l=\"1\"\n"
            "FROM scratch\n"
            "LABEL l=\"1\"\n"
            "ENV A=$B\n");
}

TEST(dockerfile, names_what_it_reads_of_its_context) {
  const auto sources = [](const std::string& lines) { return Dockerfile("FROM x\n" + lines).sources(); };
  EXPECT_THAT(*sources("RUN true\n"), IsEmpty());
  EXPECT_THAT(*sources("COPY requirements.txt ./sub/ /x/\nADD https://host/y /y\nCOPY [\"a b\", \"/c\"]\n"),
              ElementsAre("requirements.txt", "sub", "a b"));
  EXPECT_THAT(*sources("COPY --from=other /etc /etc\n"), IsEmpty());
  EXPECT_THAT(*sources("COPY ../../etc/passwd /x\n"), ElementsAre("etc/passwd"));  // As the builder takes it.
  for (const char* all : {"COPY . /x\n", "COPY *.py /x/\n", "COPY $A /x\n", "COPY a . /x/\n", "COPY / /x\n"}) {
    EXPECT_EQ(sources(all), std::nullopt) << all;
  }
}

TEST(dockerfile, that_asks_for_more_than_a_job_has_is_refused_with_its_line) {
  const auto second = [](const std::string& line) { return refusal("FROM x\n" + line + "\n"); };
  EXPECT_EQ(second("RUN --mount=type=bind,from=y,target=/z true"),
            "line 2: RUN --mount=type=bind,from=y,target=/z is not supported");
  EXPECT_EQ(second("run \\\n --network=none true"), "line 2: RUN --network=none is not supported");
  EXPECT_EQ(second("RUN --security=insecure id"), "line 2: RUN --security=insecure is not supported");
  EXPECT_EQ(second("ONBUILD RUN true"), "line 2: ONBUILD is not supported");
  EXPECT_EQ(second("COPY --parents a b"), "line 2: COPY --parents is not supported");
  EXPECT_EQ(second("RUN cat <<EOF"), "line 2: here-documents (<<) are not supported");
  EXPECT_EQ(second("WHATEVER x"), "line 2: 'WHATEVER' is not an instruction");
  // Not the beginning of an id of somebody else's image.
  EXPECT_EQ(second("COPY --from=7 a b"), "line 2: there is no stage 7 before it");
  EXPECT_EQ(second("COPY --from=0 a b"), "line 2: there is no stage 0 before it");
  EXPECT_EQ(second("COPY a"), "line 2: COPY takes a source and a target");
  EXPECT_EQ(second("RUN a \\"), "line 2: nothing follows the last \\");
  for (const char* hidden : {"\r", "\v", "\f", "\xc2\xa0", "\xe2\x80\x83"}) {
    EXPECT_EQ(second(std::string("RUN ") + hidden + "--mount=type=cache b"),
              "line 2: it has a character in it that is neither text nor a plain space");
  }
  EXPECT_EQ(second("RUN echo \xc3\xa9"), "taken");
  EXPECT_THAT(second("COPY --chown=\"1 2\" --from=y a b"), HasSubstr("is not supported"));
  for (const char* source : {"git@host:x", "https://host/x.git", "ssh://host/x", "github.com/a/b", "$A", "\\git@x"}) {
    EXPECT_EQ(second(std::string("ADD ") + source + " /x"), std::string("line 2: ADD ") + source + " is not supported");
  }
  EXPECT_EQ(refusal("# escape=`\nFROM x\n"), "line 1: another escape character than \\ is not supported");
  EXPECT_EQ(refusal("FROM --platform=linux/arm64 x\n"), "line 1: FROM --platform is not supported");
  EXPECT_THAT(refusal("FROM x:$TAG\n"), HasSubstr("line 1: '$TAG' has no value"));
  EXPECT_EQ(refusal("FROM /etc;x\n"), "line 1: '/etc;x' is not the name of an image");
  EXPECT_EQ(refusal("ARG A=y\nARG B=$A\nFROM x AS $A\nFROM $B\n"), "line 3: '$A' is not the name of a stage");
  EXPECT_EQ(refusal("RUN true\nFROM x\n"), "line 1: only ARG can stand before the first FROM");
  EXPECT_EQ(refusal(""), "line 1: there is no FROM");
  EXPECT_EQ(refusal(std::string("FROM x\n\0", 8)), "line 1: it is not text");
}

}  // namespace
}  // namespace gyre::jobs::containers
