#!/usr/bin/env python3
"""Writes test/data/documents: small office files and books, by Python's zipfile (zlib), as test_odo_extract reads them.

    python3 test/golden/make_documents.py test/data/documents
"""
import sys
import zipfile
from pathlib import Path

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
CORE = (HEAD + '<cp:coreProperties xmlns:cp="urn:c" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        '<dc:title>Herons of the delta</dc:title><dc:creator>nobody</dc:creator></cp:coreProperties>')


def paragraph(text, style=""):
    style = f'<w:pPr><w:pStyle w:val="{style}"/><w:tabs><w:tab w:pos="7"/></w:tabs></w:pPr>' if style else ""
    return f'<w:p>{style}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def docx():
    # enough distinct words for codes of several lengths
    many = "".join(paragraph(f"Row {i * i} holds {i ^ 21} eggs &amp; {i * 7919 % 1009} feathers") for i in range(300))
    body = (paragraph("Nests", "Heading2") + paragraph("Grey herons nest early.") +
            '<w:p><w:r><w:t>left</w:t><w:tab/><w:t>right</w:t><w:br/><w:t>below</w:t></w:r>'
            '<w:del><w:r><w:delText>removed</w:delText></w:r></w:del></w:p>' + many)
    return {"word/document.xml": f"{HEAD}<w:document {W}><w:body>{body}</w:body></w:document>",
            "docProps/core.xml": CORE}


def pptx():
    def slide(text):
        return f'{HEAD}<p:sld xmlns:p="urn:p" {A}><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>'
    return {"ppt/slides/slide10.xml": slide("the tenth"), "ppt/slides/slide2.xml": slide("the second"),
            "ppt/slides/slide1.xml": slide("the first"), **{f"ppt/media/{i}.bin": "x" for i in range(9)}}


def xlsx():
    shared = f'{HEAD}<sst {S}><si><t>bird</t></si><si><r><t>grey </t></r><r><t>heron</t></r><rPh><t>no</t></rPh></si></sst>'
    cells = ('<row r="1"><c t="s"><v>0</v></c><c t="inlineStr"><is><t>number</t></is></c></row>'
             '<row r="2"><c t="s"><v>1</v></c><c><f>6*7</f><v>42</v></c><c t="s"><v>99</v></c></row>')
    return {"xl/sharedStrings.xml": shared,
            "xl/worksheets/sheet1.xml": f"{HEAD}<worksheet {S}><sheetData>{cells}</sheetData></worksheet>"}


def odt():
    ns = 'xmlns:o="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:t="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    body = ('<t:tracked-changes><t:p>removed</t:p></t:tracked-changes><t:h t:outline-level="3">Nests</t:h>'
            '<t:p>Grey\n   <t:span>herons</t:span> nest<t:s t:c="3"/>early.<o:annotation><t:p>note</t:p></o:annotation></t:p>')
    return {"mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"{HEAD}<o:document {ns}><o:body>{body}</o:body></o:document>",
            "meta.xml": HEAD + '<m xmlns:dc="urn:d"><dc:title>Herons of the delta</dc:title></m>'}


def epub(chapters, items):
    manifest = "".join(f'<item id="c{i}" href="{href}"/>' for i, href in enumerate(items))
    spine = "".join(f'<itemref idref="c{i}"/>' for i in chapters)
    return {"mimetype": "application/epub+zip",
            "META-INF/container.xml": HEAD + '<container><rootfiles><rootfile full-path="book/p.opf"/></rootfiles></container>',
            "book/p.opf": f'{HEAD}<package xmlns:dc="urn:d"><metadata><dc:title>Herons of the delta</dc:title></metadata>'
                          f'<manifest>{manifest}</manifest><spine>{spine}</spine></package>'}


def write(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in members.items():
            info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            # the first member of these formats is stored
            info.compress_type = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            z.writestr(info, text)


def main():
    out = Path(sys.argv[1])
    book = epub([1, 0, 2], ["text/b.xhtml", "text/a%20one.xhtml", "../c.xhtml"])
    book |= {"book/text/a one.xhtml": "<html><title>one</title><body><h1>First</h1><p>Reeds.</p></body></html>",
             "book/text/b.xhtml": "<html><body><h1>Second</h1></body></html>", "c.xhtml": "<p>Third</p>"}
    write(out / "herons.docx", docx())
    write(out / "herons.pptx", pptx())
    write(out / "herons.xlsx", xlsx())
    write(out / "herons.odt", odt())
    write(out / "herons.epub", book)
    # 100 times the same megabyte
    write(out / "bomb.epub", epub([0] * 100, ["big.xhtml"]) | {"book/big.xhtml": "<p>" + " " * (1 << 20)})
    deep = "<w:t>" * 2000
    write(out / "deep.docx", {"word/document.xml": f"<w:document {W}>{deep}</w:document>"})
    # ten levels of entities, each ten times the one before
    levels = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
    laughs = f'<!DOCTYPE d [<!ENTITY e0 "ha">{levels}]><w:document {W}><w:p w:x="&e9;"><w:t>&e9;</w:t></w:p></w:document>'
    write(out / "entities.docx", {"word/document.xml": laughs})


main()
