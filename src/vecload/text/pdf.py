"""PDF to text with pdfium."""

from __future__ import annotations

from vecload.text.failure import ParseFailure


def pdf_text(content: bytes) -> str:
    """The text of each page, pages apart by a blank line; "" for scanned pages, which hold pictures alone.

    Hyphens at the ends of lines stay: whether one belongs to the word cannot be known. Raises
    ParseFailure("encrypted"), ("broken") or ("missing_parser").
    """
    try:
        import pypdfium2  # type: ignore[import-untyped]  # it has no type marker
        import pypdfium2.raw as raw  # type: ignore[import-untyped]
    except ImportError:
        raise ParseFailure("missing_parser", "PDF needs pypdfium2; run: pip install 'vecload[docs]'") from None

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if error.err_code in (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY):
            raise ParseFailure("encrypted", "The PDF is protected by a password; store it without one.") from error
        raise ParseFailure("broken", "The PDF is broken and cannot be opened; export it again.") from error
    pages = []
    with document:
        for number in range(len(document)):
            try:
                page = document[number]
                text = page.get_textpage()
                pages.append(text.get_text_range().replace("\r\n", "\n").strip())
                text.close()
                page.close()
            except pypdfium2.PdfiumError as error:
                raise ParseFailure("broken", f"Page {number + 1} of the PDF is broken; export it again.") from error
    return "\n\n".join(page for page in pages if page)
