// Nodes have nothing but the text of a requirements file, and know the environment that they keep by it: a file of the
// user's machine would be missing there, or an outdated copy be used.
#include "gyre/jobs/spec/requirements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gyre::jobs::spec {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(requirements, of_indexes_and_addresses_are_taken) {
  for (const char* text : {"",
                           "# nothing\n",
                           "numpy\n",
                           "numpy==1.26.4  # why\n",
                           "a.b-c_d[x,y]>=1,<2 ; python_version < '3.12'\n",
                           "torch --config-settings='-e .' \\\n  --hash=sha256:ab\n",
                           "-i https://host/simple/\n--pre\nx\n",
                           "--index-url=https://host/simple\n",
                           "--extra-index-url https://${TOKEN}@host/\n",
                           "--no-index\n",
                           "--find-links /share/wheels\n",
                           "-f file:///share/wheels\n",
                           "--require-hashes\n",
                           "--trusted-host host\n",
                           "x @ https://host/x.whl\n",
                           "x@git+https://host/x.git@v1#egg=x\n",
                           "https://host/x-1.tar.gz\n",
                           "git+ssh://git@host/x.git\n",
                           "-e git+https://host/x.git#egg=x\n",
                           "--editable=git+https://host/x\n",
                           "x;platform_machine=='a/b'\n",
                           "# -e . \\\n",
                           "--no-binary :all:\n",
                           "--only-binary=:all:\n"}) {
    EXPECT_EQ(refusal_of_requirements(text), std::nullopt) << text;
  }
}

TEST(requirements, that_name_files_are_refused_with_their_line) {
  for (const char* line : {".",
                           "./x",
                           "../x",
                           ".[test]",
                           "x/y",
                           "/share/x.whl",
                           "x-1.0-py3-none-any.whl",
                           "x-1.0.tar.gz ; a == 'b'",
                           "x.zip[extra]",
                           "x @ file:///share/x.whl",
                           "x[a, b] @ file:x.whl",
                           "x@FILE:x",
                           "file:///x",
                           "git+file:///x",
                           "-e .",
                           "-e.",
                           "-e '.'",
                           "--editable .",
                           "--editable=.",
                           "--edit .",
                           "-e src/x",
                           "-e file:.",
                           "-e x",
                           "./a\\b --no-binary x"}) {
    const auto refusal = refusal_of_requirements(std::string("numpy\n") + line + "\n");
    ASSERT_TRUE(refusal) << line;
    EXPECT_THAT(*refusal, AllOf(HasSubstr(std::string("line 2, '") + line + "', "), HasSubstr("--code"))) << line;
  }
  for (const char* line : {"-r a.txt", "-ra.txt", "--requirement a.txt", "--requirement=a.txt", "-c a.txt",
                           "--constraint=https://host/a.txt", "-r https://host/a.txt", "--pre -r a.txt"}) {
    EXPECT_THAT(refusal_of_requirements(line).value_or(""), HasSubstr("names another file")) << line;
  }
  for (const char* line : {"-f wheels", "--find-links=./wheels", "--find-links wheels", "-i simple"}) {
    EXPECT_THAT(refusal_of_requirements(line).value_or(""), HasSubstr("an absolute path")) << line;
  }
}

TEST(requirements, are_text_whatever_ends_their_lines) {
  EXPECT_THAT(refusal_of_requirements("x\n# caf\xe9\n").value_or(""), HasSubstr("line 2 is not UTF-8 text"));
  EXPECT_THAT(refusal_of_requirements(std::string("\xff\xfex\0\n\0", 6)).value_or(""), HasSubstr("line 1 is not"));
  EXPECT_THAT(refusal_of_requirements(std::string("x\n\0", 3)).value_or(""), HasSubstr("line 2 is not"));
  EXPECT_EQ(refusal_of_requirements("\xef\xbb\xbfx # caf\xc3\xa9\n"), std::nullopt);
  for (const char* text : {"a\nb\n", "a\r\nb\r\n", "a\rb\r",
                           "\xef\xbb\xbf"
                           "a\nb"}) {
    EXPECT_EQ(requirements_text(requirement_lines(text)), "a\nb\n");
  }
}

TEST(requirements, are_joined_where_lines_go_on) {
  EXPECT_THAT(refusal_of_requirements("\xef\xbb\xbf# a \\\r\nx\\\r\n==1\r\n\r\n-e \\\r\n  .\r\n").value_or(""),
              HasSubstr("line 5, '-e   .'"));
  EXPECT_THAT(refusal_of_requirements("x # a\\\n.").value_or(""), HasSubstr("line 2, '.'"));
  EXPECT_EQ(refusal_of_requirements("x\\\n# -e ."), std::nullopt);
}

}  // namespace
}  // namespace gyre::jobs::spec
