# cmake -DTEXT=FILE -DOUT=FILE.cpp -DFUNCTION=NAME -DHEADER=HEADER -P embed_text.cmake
#
# Writes a source file that defines `std::string_view NAME()`, which returns the content of a text file. NAME may have a
# namespace. The text is cut into literals of a few thousand bytes, since compilers limit the length of one.

file(READ ${TEXT} rest)
set(literals "")
string(LENGTH "${rest}" length)
set(at 0)
while(at LESS length)
  string(SUBSTRING "${rest}" ${at} 8000 part)
  string(APPEND literals "    R\"~~~(${part})~~~\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUT} "// Written by CMake from ${TEXT}.\n\n#include \"${HEADER}\"\n\nstd::string_view ${FUNCTION}() {\n  return\n${literals}    ;\n}\n")
